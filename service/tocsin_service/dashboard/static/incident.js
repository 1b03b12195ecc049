// One incident: what broke, the numbers, what it means, what to do, and what can be done here.

import { forms } from "./acts.js";
import { call, listen, runPath } from "./api.js";
import { h, link, replace } from "./dom.js";
import { moment, number } from "./format.js";
import { Group } from "./group.js";
import { inTurn } from "./overview.js";
import { toRule, toRun, toRuns } from "./route.js";
import { Samples } from "./samples.js";
import { say } from "./words.js";

const POINTS = 400;
const BEFORE = 120; // steps of a curve before the onset,
const AFTER = 80; // and after the latest sign

export async function show(view, { run, incident: id, query }, { signal, status }) {
  const group = new Group("incident");
  signal.addEventListener("abort", () => group.destroy(), { once: true });
  const samples = new Samples(signal);
  const facts = h("div", { class: "incident" });
  const acts = h("div", { class: "acts" });
  let known = "";
  const load = async () => {
    const incident = await call(runPath(run, `/incidents/${id}`), { signal });
    document.title = `${incident.title} · ${run} · Tocsin`;
    replace(facts, heading(incident), explanation(incident));
    const state = JSON.stringify([incident.state, incident.members, incident.alerts.map((one) => [one.state, one.severity])]);
    if (state === known) return;
    known = state;
    await showEvidence(incident, evidence, { group, samples, signal });
    acts.replaceChildren(...forms(incident, load).filter(Boolean)); // what somebody is typing stays, unless other acts are possible now
  };
  const evidence = h("section", { class: "evidence" });
  await load();
  view.replaceChildren(facts, evidence, acts);
  if (query.get("show") === "samples") evidence.querySelector(".samples")?.scrollIntoView();
  listen(run, inTurn(load, status), status, signal);
}

function heading(incident) {
  const facts = [
    say("attempt", { number: incident.attempt }),
    say("since", { step: incident.onset_step }),
    say("said_at", { step: incident.opened_step }),
    incident.resolved_step !== null && say("over_at", { step: incident.resolved_step }),
    incident.last_good_step === null ? say("none_good") : say("last_good", { step: incident.last_good_step }),
  ];
  const { acknowledged: by, silenced } = incident;
  return [
    h("nav", {}, h("a", { href: toRuns() }, `‹ ${say("back_runs")}`), " ", h("a", { href: toRun(incident.run), "data-key": "run" }, `‹ ${incident.run}`)),
    h("h1", {}, incident.title, " ", h("span", { class: `badge ${incident.severity}` }, say(incident.severity))),
    h("p", { class: "facts" }, facts.filter(Boolean).join(" · ")),
    h(
      "p",
      { class: "standing", role: "status" },
      say(incident.state === "resolved" ? "is_over" : "goes_on"),
      " ",
      by === null ? say("nobody") : say("acknowledged_by", { author: by.author, time: moment(by.time) }),
      by?.comment ? ` “${by.comment}” ` : " ",
      silenced && say("silenced_until", { time: moment(silenced.ends) }),
    ),
  ];
}

function explanation({ meaning, remedies, runbook, severity }) {
  return h(
    "section",
    { class: `panel ${severity}` },
    h("h2", {}, say("meaning")),
    h("p", {}, meaning),
    remedies.length > 0 && [h("h2", {}, say("remedies")), h("ol", {}, remedies.map((one) => h("li", {}, one)))],
    runbook && h("p", { class: "facts" }, `${say("runbook")}: `, link(runbook)),
  );
}

async function showEvidence(incident, place, { group, samples, signal }) {
  const { alerts, run, attempt } = incident;
  const first = Math.max(0, Math.min(...alerts.map((one) => one.onset_step)) - BEFORE);
  const last = Math.max(...alerts.map((one) => one.fired_step)) + AFTER;
  const metric = [...new Set(alerts.map((one) => one.metric))].slice(0, 50);
  const charts = await call(runPath(run, "/charts"), { query: { metric, first, last, points: POINTS }, signal });
  group.destroy();
  const curves = new Map(charts.families.flatMap((family) => family.metrics).map((one) => [one.metric, one]));
  const drawn = new Set();
  const told = alerts.map((alert) => {
    const curve = curves.get(alert.metric);
    const parts = curve?.parts.filter((part) => part.attempt === attempt) ?? [];
    const shown = parts.length > 0 && !drawn.has(alert.metric);
    drawn.add(alert.metric);
    const same = alerts.filter((one) => one.metric === alert.metric);
    return h("article", { class: `panel ${alert.severity}`, "data-alert": alert.id }, arithmetic(alert), shown && group.add({ ...curve, parts }, same, attempt), samples.of(alert));
  });
  replace(place, h("h2", {}, say("evidence")), told);
}

function arithmetic(alert) {
  const { evidence } = alert;
  const rows = ["value", "baseline", "limit", "score", "window"].filter((name) => evidence[name] !== null);
  const over = alert.resolved_step !== null && say("reason", { reason: alert.reason ?? "", step: alert.resolved_step });
  return [
    h("h3", {}, alert.metric, " ", h("span", { class: `badge ${alert.severity}` }, say(alert.severity)), " ", h("a", { class: "facts", href: toRule(alert.rule) }, alert.rule)),
    h("p", { class: "detail" }, evidence.detail),
    h("dl", {}, rows.map((name) => h("div", {}, h("dt", {}, say(name)), h("dd", {}, number(evidence[name]))))),
    h("p", { class: "facts" }, [say("since", { step: alert.onset_step }), say("said_at", { step: alert.fired_step }), over].filter(Boolean).join(" · ")),
  ];
}
