// All runs: what stands where, how quickly it goes on, and what is worst.

import { call, listen } from "./api.js";
import { h, replace } from "./dom.js";
import { ago, duration, number } from "./format.js";
import { remember, toIncident, toRun } from "./route.js";
import { sparkline } from "./sparkline.js";
import { say } from "./words.js";

const LIMIT = 2000;
const PAUSE_MS = 1000; // between two looks at all runs
const RANK = { critical: 3, warning: 2, info: 1 };
const rank = (run) => (run.worst === null ? 0 : RANK[run.worst.severity]);
const SORTS = {
  worst: (a, b) => rank(b) - rank(a) || (b.last_seen ?? 0) - (a.last_seen ?? 0),
  recent: (a, b) => (b.last_seen ?? 0) - (a.last_seen ?? 0),
  name: (a, b) => a.run.localeCompare(b.run),
  step: (a, b) => (b.step ?? -1) - (a.step ?? -1),
};
const STATES = ["running", "silent", "finished"];
const SEVERITIES = ["critical", "warning", "info", "quiet"];

export async function show(view, route, { signal, status }) {
  document.title = `${say("runs")} · Tocsin`;
  let found = { runs: [], total: 0 };
  const wish = Object.fromEntries(["q", "state", "worst", "sort"].map((name) => [name, route.query.get(name) ?? ""]));
  const count = h("p", { class: "facts", role: "status" });
  const list = h("ul", { class: "runs" });
  const rows = new Map(); // what hasn't changed isn't made again
  const rowOf = (run) => {
    const text = JSON.stringify(run);
    if (rows.get(run.run)?.text !== text) rows.set(run.run, { text, row: row(run) });
    return rows.get(run.run).row;
  };
  const draw = () => {
    const runs = found.runs.filter((run) => matches(run, wish)).sort(SORTS[wish.sort] ?? SORTS.worst);
    count.textContent = say("shown_of", { shown: runs.length, total: found.total });
    const none = h("li", { class: "empty" }, say(found.runs.length ? "none_found" : "no_runs"));
    replace(list, runs.length ? runs.map(rowOf) : none);
  };
  const load = async () => {
    found = await call("/v1/overview", { query: { limit: LIMIT }, signal });
    draw();
  };
  await load();
  view.replaceChildren(h("h1", {}, say("runs")), filters(wish, draw), count, list);
  listen(null, inTurn(load, status, PAUSE_MS), status, signal);
}

/** Calls `load` for what has changed: once at a time, with a pause, and once more, with the latest, if more has meanwhile. */
export function inTurn(load, status, pause = 0) {
  let going = false;
  let again = false;
  let latest;
  return async function turn(change) {
    latest = change;
    if (going) {
      again = true;
      return;
    }
    going = true;
    try {
      await load(change);
    } catch (error) {
      if (error.name !== "AbortError") status("lost");
    }
    if (pause) await new Promise((resolve) => setTimeout(resolve, pause));
    going = false;
    if (again) {
      again = false;
      turn(latest);
    }
  };
}

function matches(run, { q, state, worst }) {
  const texts = [run.run, run.algorithm, run.framework, ...Object.entries(run.labels).flat()];
  const wanted = q.toLowerCase().split(/\s+/).filter(Boolean);
  const all = texts.filter(Boolean).join("\n").toLowerCase();
  const severity = run.worst?.severity ?? "quiet";
  return wanted.every((word) => all.includes(word)) && (!state || run.state === state) && (!worst || severity === worst);
}

function filters(wish, draw) {
  const changed = (name) => (event) => {
    wish[name] = event.target.value;
    remember({ [name]: wish[name] });
    draw();
  };
  const choice = (name, label, options) => {
    const told = Object.entries(options).map(([value, text]) => h("option", { value, selected: value === wish[name] }, text));
    return h("label", {}, say(label), h("select", { name, onchange: changed(name) }, told));
  };
  const named = (names, prefix = "") => Object.fromEntries(names.map((name) => [name, say(prefix + name)]));
  const search = h("input", { type: "search", name: "q", placeholder: say("search_hint"), value: wish.q, oninput: changed("q") });
  return h(
    "form",
    { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "wide" }, say("search"), search),
    choice("state", "state", { "": say("any_state"), ...named(STATES) }),
    choice("worst", "worst", { "": say("any_severity"), ...named(SEVERITIES) }),
    choice("sort", "sort", { "": say("sort_worst"), ...Object.fromEntries(["recent", "name", "step"].map((one) => [one, say(`sort_${one}`)])) }),
  );
}

function row(run) {
  const { worst } = run;
  const last = run.values.at(-1);
  const severity = worst?.severity ?? "quiet";
  return h(
    "li",
    { class: `run ${severity}`, "data-run": run.run },
    h(
      "div",
      { class: "name" },
      h("a", { href: toRun(run.run), "data-key": `run ${run.run}` }, run.run),
      h("span", { class: "facts" }, [run.algorithm, run.framework].filter(Boolean).join(" · ")),
    ),
    h("span", { class: `state ${run.state}` }, say(run.state)),
    h("span", { class: "step" }, run.step === null ? "—" : say("at_step", { step: run.step })),
    h("span", { class: "facts pace" }, run.interval === null ? "" : say("each", { time: duration(run.interval) })),
    h("span", { class: "facts heard" }, run.last_seen === null ? "" : ago(run.last_seen)),
    h("div", { class: "small", title: run.metric ?? "" }, sparkline(run.values), h("span", { class: "facts" }, last === undefined ? "" : number(last))),
    h(
      "div",
      { class: "worst" },
      h("span", { class: `badge ${severity}` }, say(severity)),
      worst && h("a", { href: toIncident(run.run, worst.incident), "data-key": `worst ${run.run}` }, worst.title),
    ),
  );
}
