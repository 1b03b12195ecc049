// Charts that belong together: one range of steps, one scale, one cursor; each is drawn when it comes into sight.

import { Chart } from "./chart.js";
import { append, count } from "./points.js";
import { remember } from "./route.js";

const MARGIN = "300px";

export class Group {
  /** `range`: [first, last] to begin with, or null for all; `log`: on a logarithmic scale. */
  constructor(key, range = null, log = false) {
    Object.assign(this, { key, range, log });
    this.charts = new Map();
    this.onzoom = () => {};
    this.sides = null;
    const seen = (entries) => entries.filter((one) => one.isIntersecting).forEach((one) => this.of(one.target)?.draw());
    this.observer = new IntersectionObserver(seen, { rootMargin: MARGIN });
  }

  of(element) {
    return this.charts.get(element.dataset.metric);
  }

  /** A new chart's element. */
  add(metric, alerts, latest) {
    const chart = new Chart(metric, alerts, latest, this);
    this.charts.set(metric.metric, chart);
    chart.watch(this.observer);
    return chart.element;
  }

  /** The steps that there are, of all charts. */
  extent() {
    const steps = [...this.charts.values()].flatMap(({ metric }) => metric.parts.flatMap(({ steps: all }) => [all[0], all.at(-1)]));
    return steps.length ? [Math.min(...steps), Math.max(...steps)] : [0, 1];
  }

  /** Shows these steps, as far as there are any; null: all. */
  zoom(range) {
    this.show(range);
    remember({ from: this.range?.[0], to: this.range?.[1] });
  }

  /** The same while a hand still moves: the address changes when it lets go. */
  show(range) {
    const [least, most] = this.extent();
    const cut = range && [Math.max(least, Math.round(range[0])), Math.min(most, Math.round(range[1]))];
    this.range = cut && cut[1] > cut[0] && (cut[0] > least || cut[1] < most) ? cut : null;
    for (const chart of this.charts.values()) if (chart.plot) chart.range();
    this.onzoom(this.range);
  }

  /** The range moved by so many steps, as far as there are any: its width stays. */
  moved([from, to], steps) {
    const [least, most] = this.extent();
    const by = Math.max(least - from, Math.min(most - to, Math.round(steps)));
    return [from + by, to + by];
  }

  /** Moves the range by a share of its width. */
  pan(share) {
    const range = this.range ?? this.extent();
    this.zoom(this.moved(range, share * (range[1] - range[0])));
  }

  /** Shows so many times as many steps, around the same middle. */
  scaled(factor) {
    const [from, to] = this.range ?? this.extent();
    const by = ((factor - 1) * (to - from)) / 2;
    this.zoom([from - by, to + by]);
  }

  scale(log) {
    this.log = log;
    remember({ log: log && "1" });
    for (const chart of this.charts.values()) chart.anew();
  }

  /** Shows finer points (families as /charts gives them) of the steps that it shows; null: those of the whole run alone. */
  refine(families, [first, last] = []) {
    const found = new Map((families ?? []).flatMap((family) => family.metrics).map((one) => [one.metric, one.parts]));
    for (const [name, chart] of this.charts) chart.refine(found.has(name) ? { first, last, parts: found.get(name) } : null);
  }

  /** Takes in newer points (families as /charts gives them); false if a metric is new, or there are too many points. */
  append(families, most) {
    for (const metric of families.flatMap((family) => family.metrics)) {
      const chart = this.charts.get(metric.metric);
      if (chart === undefined) return false;
      append(chart.metric.parts, metric.parts);
      if (count(chart.metric.parts) > most * chart.metric.parts.length) return false;
    }
    return true;
  }

  /** Draws again what was said and what came in. */
  update(alertsOf, latest) {
    for (const [name, chart] of this.charts) chart.update(alertsOf(name), latest);
  }

  destroy() {
    this.observer.disconnect();
    for (const chart of this.charts.values()) chart.destroy();
    this.charts.clear();
  }
}
