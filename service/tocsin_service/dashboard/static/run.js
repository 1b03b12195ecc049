// One run: where it stands, what was said of it and when, and all of its curves.

import { call, listen, runPath } from "./api.js";
import { h, link, replace } from "./dom.js";
import { refining } from "./finer.js";
import { ago } from "./format.js";
import { Group } from "./group.js";
import { inTurn } from "./overview.js";
import { toCompare, toIncident, toRuns } from "./route.js";
import { toolbar, wished } from "./tools.js";
import { say } from "./words.js";

const POINTS = 600; // of a curve, when it is loaded
const MOST_POINTS = 2 * POINTS; // with what came in since; then it is loaded again
const FOLDED = new Set(["throughput", "progress", "other", "data"]);

export async function show(view, route, { signal, status }) {
  document.title = `${route.run} · Tocsin`;
  const page = new RunPage(route, signal);
  signal.addEventListener("abort", () => page.group.destroy(), { once: true });
  await page.load();
  view.replaceChildren(...page.elements());
  listen(route.run, inTurn((change) => page.change(change), status), status, signal);
}

class RunPage {
  constructor({ run, query }, signal) {
    Object.assign(this, { run, signal });
    this.group = new Group("run", ...wished(query));
    this.head = h("div", { class: "head" });
    this.timeline = h("section", { class: "timeline", "aria-label": say("incidents") });
    this.curves = h("div", { class: "families" });
    this.seen = null;
    const finer = ([first, last]) => this.ask("/charts", { points: POINTS, first, last }).then((found) => found.families);
    this.refine = refining(this.group, finer, signal);
  }

  ask(path, query = {}) {
    return call(runPath(this.run, path), { query, signal: this.signal });
  }

  async load() {
    const [charts] = await Promise.all([this.ask("/charts", { points: POINTS }), this.loadSaid()]);
    this.drawCurves(charts); // which of them are open depends on what was said
    replace(this.timeline, this.incidentList());
    this.group.update((name) => this.alertsOf(name), this.charts.attempt);
  }

  async loadSaid() {
    const [summary, { alerts }, { incidents }] = await Promise.all([this.ask(""), this.ask("/alerts"), this.ask("/incidents")]);
    Object.assign(this, { summary, alerts, incidents });
    replace(this.head, this.heading());
    replace(this.timeline, this.incidentList());
  }

  drawCurves(charts) {
    this.charts = charts;
    const kept = new Map([...this.curves.querySelectorAll("details")].map((one) => [one.dataset.family, one.open]));
    this.group.destroy();
    const { families } = this.charts;
    const parts = families.map((family) => this.family(family, kept.get(family.family)));
    replace(this.curves, parts.length ? parts : h("p", { class: "empty" }, say("no_curves")));
    this.refine();
  }

  /** Something has changed: new points are added, and what was said is asked for again. */
  async change(change) {
    const first = this.seen === null;
    const before = this.seen ?? {};
    this.seen = change;
    if (first || change.said !== before.said || change.attempt !== before.attempt) await this.loadSaid();
    if (first || change.vectors !== before.vectors) await this.addPoints();
    this.group.update((name) => this.alertsOf(name), this.charts.attempt);
  }

  async addPoints() {
    const newer = await this.ask("/charts", { points: POINTS, behind: this.charts.position });
    if (newer.attempt !== this.charts.attempt || !this.group.append(newer.families, MOST_POINTS)) return this.drawCurves(await this.ask("/charts", { points: POINTS }));
    this.charts.position = newer.position;
    const step = Math.max(this.summary.step ?? 0, this.group.extent()[1]);
    this.summary = { ...this.summary, step };
    replace(this.head, this.heading());
    replace(this.timeline, this.incidentList());
  }

  alertsOf(metric) {
    return (this.alerts ?? []).filter((alert) => alert.metric === metric);
  }

  heading() {
    const { config, step, attempt, last_seen: seen, error } = this.summary;
    const facts = [config.algorithm, config.framework, step !== null && say("at_step", { step }), attempt && say("attempt", { number: attempt }), seen !== null && ago(seen)];
    const labels = Object.entries(config.labels ?? {}).map(([name, value]) => h("span", { class: "badge" }, `${name}: ${value}`));
    return [
      h("nav", {}, h("a", { href: toRuns(), "data-key": "back" }, `‹ ${say("back_runs")}`), h("a", { href: toCompare(this.run), "data-key": "compare" }, say("compare"))),
      h("h1", {}, this.run),
      h("p", { class: "facts" }, facts.filter(Boolean).join(" · "), " ", labels, config.link && [" ", link(config.link, say("open_tracker"))]),
      error && h("p", { class: "notice failed", role: "alert" }, error),
    ];
  }

  incidentList() {
    const [first, last] = this.charts ? this.group.extent() : [0, Math.max(1, this.summary.step ?? 1)];
    const title = h("h2", {}, say("incidents"));
    if (!this.incidents.length) return [title, h("p", { class: "facts" }, say("no_incidents"))];
    const share = (step) => `${(100 * (Math.min(last, Math.max(first, step)) - first)) / Math.max(1, last - first)}%`;
    const rows = this.incidents.map((one) => {
      const bar = h("span", { class: `span ${one.severity} ${one.state}` });
      bar.style.left = share(one.onset_step);
      bar.style.right = `calc(100% - ${share(one.resolved_step ?? last)})`;
      const state = one.resolved_step === null ? say("since", { step: one.onset_step }) : `${say("since", { step: one.onset_step })}, ${say("over_at", { step: one.resolved_step })}`;
      const name = h("a", { href: toIncident(this.run, one.id), "data-key": one.id }, one.title);
      const care = one.acknowledged && h("span", { class: "badge" }, one.acknowledged.author);
      return h("li", { class: one.severity, "data-incident": one.id }, h("div", {}, h("span", { class: `badge ${one.severity}` }, say(one.severity)), " ", name, " ", care, h("span", { class: "facts" }, ` ${state}`)), h("div", { class: "track", "aria-hidden": "true" }, bar));
    });
    return [title, h("ol", {}, rows)];
  }

  family({ family, title, metrics }, open) {
    const loud = metrics.some(({ metric }) => this.alertsOf(metric).length);
    const charts = metrics.map((metric) => this.group.add(metric, this.alertsOf(metric.metric), this.charts.attempt));
    const shown = open ?? (loud || !FOLDED.has(family));
    return h("details", { class: "family", "data-family": family, open: shown }, h("summary", {}, h("h2", {}, title), h("span", { class: "facts" }, String(metrics.length))), h("div", { class: "charts" }, charts));
  }

  elements() {
    const incomplete = this.charts.complete ? null : h("p", { class: "notice" }, say("not_complete"));
    return [this.head, this.timeline, incomplete, toolbar(this.group, this.curves, this.refine), this.curves].filter(Boolean);
  }
}
