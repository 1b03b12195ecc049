// Two runs beside each other: the latest attempts of both in the same charts, by step; live.

import { call, listen, runPath } from "./api.js";
import { h, replace } from "./dom.js";
import { refining } from "./finer.js";
import { Group } from "./group.js";
import { inTurn } from "./overview.js";
import { remember, toRun, toRuns } from "./route.js";
import { toolbar, wished } from "./tools.js";
import { say } from "./words.js";

const POINTS = 600;
const MOST_POINTS = 2 * POINTS; // with what came in since; then they are loaded again
const SIDES = ["a", "b"];
const ATTEMPT = { a: 0, b: 1 }; // in a chart the second run is what an earlier attempt is elsewhere: paler
const MOST_RUNS = 2000;

export async function show(view, { query }, { signal, status }) {
  document.title = `${say("compare")} · Tocsin`;
  const page = new Comparison(query, signal, status);
  signal.addEventListener("abort", () => page.leave(), { once: true });
  const { runs } = await call("/v1/runs", { query: { limit: MOST_RUNS, lang: null }, signal });
  const fields = SIDES.map((side) => page.field(side, runs.map((one) => one.run)));
  const form = h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, fields);
  view.replaceChildren(h("nav", {}, h("a", { href: toRuns() }, `‹ ${say("back_runs")}`)), h("h1", {}, say("compare")), form, page.names, page.tools, page.place);
  await page.choose({});
}

class Comparison {
  constructor(query, signal, status) {
    Object.assign(this, { signal, status });
    this.wish = Object.fromEntries(SIDES.map((side) => [side, query.get(side) ?? ""]));
    this.group = new Group("compare", ...wished(query));
    this.names = h("p", { class: "facts" });
    this.place = h("div", { class: "families" });
    const finer = async ([first, last]) => paired(await this.ask({ first, last }));
    this.refine = refining(this.group, finer, signal);
    this.tools = toolbar(this.group, this.place, this.refine);
    this.heard = new AbortController();
    this.loads = 0;
  }

  leave() {
    this.heard.abort();
    this.group.destroy();
  }

  field(side, ids) {
    const wished = this.wish[side];
    const options = ["", ...ids].map((run) => h("option", { value: run, selected: run === wished }, run));
    return h("label", { class: "wide" }, say(`side_${side}`), h("select", { name: side, onchange: (event) => this.choose({ [side]: event.target.value }) }, options));
  }

  /** Shows these runs, and listens to them. */
  async choose(wish) {
    Object.assign(this.wish, wish);
    remember(this.wish);
    this.heard.abort();
    this.heard = new AbortController();
    const { signal } = this.heard;
    const chosen = SIDES.filter((side) => this.wish[side]);
    replace(this.names, chosen.map((side) => h("a", { class: `side ${side}`, href: toRun(this.wish[side]) }, this.wish[side])));
    await this.load();
    if (signal.aborted) return;
    if (!chosen.length) return this.status("loaded");
    const states = {};
    const told = (side) => (state) => {
      states[side] = state;
      this.status(Object.values(states).includes("lost") ? "lost" : state);
    };
    for (const side of chosen) {
      const heard = (change) => signal.aborted || this.change(side, change);
      listen(this.wish[side], inTurn(heard, told(side)), told(side), signal);
    }
  }

  /** What /charts says of both sides. */
  async ask(query) {
    const ask = (side) => call(runPath(this.wish[side], "/charts"), { query: { points: POINTS, ...query }, signal: this.signal });
    return Object.fromEntries(await Promise.all(SIDES.map(async (side) => [side, this.wish[side] ? await ask(side) : null])));
  }

  async load() {
    const load = (this.loads += 1);
    const found = await this.ask({});
    if (load !== this.loads) return; // other runs were chosen meanwhile
    const metrics = Object.fromEntries(SIDES.map((side) => [side, new Set(names(ofSide(side, found[side])))]));
    Object.assign(this, { found, metrics, vectors: {} });
    this.group.destroy();
    this.group.sides = SIDES.map((side) => this.wish[side]);
    const families = paired(this.found, { both: true });
    this.tools.hidden = !families.length;
    replace(this.place, families.length ? families.map((family) => section(family, this.group)) : h("p", { class: "empty" }, say("compare_text")));
    this.refine();
  }

  /** Something has changed in a run: its new points are added. */
  async change(side, change) {
    if (change.vectors === this.vectors[side]) return;
    const known = this.found[side];
    const newer = await call(runPath(this.wish[side], "/charts"), { query: { points: POINTS, behind: known.position }, signal: this.signal });
    if (known !== this.found[side]) return; // loaded again meanwhile, with these
    const families = ofSide(side, newer);
    if (newer.attempt !== known.attempt || this.isMissing(side, families)) return this.load();
    known.position = newer.position;
    this.vectors[side] = change.vectors;
    const drawn = families.map((family) => ({ ...family, metrics: family.metrics.filter(({ metric }) => this.group.charts.has(metric)) }));
    if (!this.group.append(drawn, MOST_POINTS)) return this.load();
    this.group.update(() => [], 0);
  }

  /** Whether one of a run's metrics, old or new, has no chart though the other run has it too. */
  isMissing(side, families) {
    const [mine, theirs] = [side, ...SIDES.filter((one) => one !== side)].map((one) => this.metrics[one]);
    for (const name of names(families)) mine.add(name);
    return [...mine].some((name) => theirs.has(name) && !this.group.charts.has(name));
  }
}

const names = (families) => families.flatMap((family) => family.metrics).map((one) => one.metric);

/** The metrics of a run's latest attempt, by family; the attempt gets the number of its side. */
function ofSide(side, found) {
  const latest = (parts) => parts.filter((part) => part.attempt === found.attempt).map((part) => ({ ...part, attempt: ATTEMPT[side] }));
  const some = (metrics) => metrics.map((metric) => ({ ...metric, parts: latest(metric.parts) })).filter((metric) => metric.parts.length);
  return (found?.families ?? []).map((family) => ({ ...family, metrics: some(family.metrics) }));
}

/** The families of both runs, the points of the second first; `both`: only the metrics that both have. */
function paired(found, { both = false } = {}) {
  const families = new Map();
  const metrics = new Map();
  for (const side of SIDES) {
    for (const { metrics: some, ...family } of ofSide(side, found[side])) {
      if (!families.has(family.family)) families.set(family.family, { ...family, metrics: [] });
      for (const metric of some) {
        if (!metrics.has(metric.metric)) metrics.set(metric.metric, { ...metric, family: family.family, parts: [] });
        metrics.get(metric.metric).parts.unshift(...metric.parts);
      }
    }
  }
  for (const metric of metrics.values()) {
    if (!both || metric.parts.length === SIDES.length) families.get(metric.family).metrics.push(metric);
  }
  return [...families.values()].filter((family) => family.metrics.length);
}

function section({ family, title, metrics }, group) {
  return h("details", { class: "family", "data-family": family, open: true }, h("summary", {}, h("h2", {}, title)), h("div", { class: "charts" }, metrics.map((metric) => group.add(metric, [], 0))));
}
