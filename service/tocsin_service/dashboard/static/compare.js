// Two runs beside each other: the latest attempts of both in the same charts, by step.

import { call, runPath } from "./api.js";
import { h, replace } from "./dom.js";
import { Group } from "./group.js";
import { remember, toRun, toRuns } from "./route.js";
import { say } from "./words.js";

const POINTS = 600;
const SIDES = ["a", "b"];
const MOST_RUNS = 2000;

export async function show(view, { query }, { signal, status }) {
  document.title = `${say("compare")} · Tocsin`;
  const wish = Object.fromEntries(SIDES.map((side) => [side, query.get(side) ?? ""]));
  const group = new Group("compare");
  signal.addEventListener("abort", () => group.destroy(), { once: true });
  const names = h("p", { class: "facts" });
  const place = h("div", { class: "families" });
  const draw = async () => {
    remember(wish);
    replace(names, SIDES.filter((side) => wish[side]).map((side) => h("a", { class: `side ${side}`, href: toRun(wish[side]) }, wish[side])));
    group.destroy();
    const found = await Promise.all(SIDES.map((side) => latest(wish[side], signal)));
    group.sides = SIDES.map((side) => wish[side]);
    const families = paired(...found);
    replace(place, families.map((family) => section(family, group)));
    if (!families.length) replace(place, h("p", { class: "empty" }, say("compare_text")));
  };
  const { runs } = await call("/v1/runs", { query: { limit: MOST_RUNS, lang: null }, signal });
  const ids = runs.map((one) => one.run);
  const choose = (side) => async (event) => {
    wish[side] = event.target.value;
    await draw();
  };
  const fields = SIDES.map((side) => field(side, wish[side], ids, choose(side)));
  view.replaceChildren(h("nav", {}, h("a", { href: toRuns() }, `‹ ${say("back_runs")}`)), h("h1", {}, say("compare")), h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, fields), names, place);
  await draw();
  status("loaded");
}

function field(side, value, ids, chosen) {
  const options = ["", ...ids].map((run) => h("option", { value: run, selected: run === value }, run));
  return h("label", { class: "wide" }, say(`side_${side}`), h("select", { name: side, onchange: chosen }, options));
}

/** The metrics of a run's latest attempt, by name, with their families. */
async function latest(run, signal) {
  if (!run) return new Map();
  const { families, attempt } = await call(runPath(run, "/charts"), { query: { points: POINTS }, signal });
  const all = families.flatMap((family) => family.metrics.map((metric) => ({ ...metric, family: family.family, title: family.title })));
  return new Map(all.map((metric) => [metric.metric, { ...metric, parts: metric.parts.filter((part) => part.attempt === attempt) }]));
}

/** The families of metrics that both have. In a chart the second run is what an earlier attempt is elsewhere: paler. */
function paired(first, second) {
  const families = new Map();
  for (const [name, metric] of first) {
    const other = second.get(name);
    if (other === undefined || !metric.parts.length || !other.parts.length) continue;
    const parts = [{ ...other.parts[0], attempt: 1 }, { ...metric.parts[0], attempt: 0 }];
    if (!families.has(metric.family)) families.set(metric.family, { title: metric.title, metrics: [] });
    families.get(metric.family).metrics.push({ ...metric, parts });
  }
  return [...families.values()];
}

function section({ title, metrics }, group) {
  return h("details", { class: "family", open: true }, h("summary", {}, h("h2", {}, title)), h("div", { class: "charts" }, metrics.map((metric) => group.add(metric, [], 0))));
}
