// One chart: the curve of a metric in every attempt, and what was said of it.

import { h } from "./dom.js";
import { number } from "./format.js";
import { columns, refined } from "./points.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";
import { say } from "./words.js";

const HEIGHT = 190;
const STRIDE = 10; // points that an arrow key jumps with shift
const MARKS_TOLD = 10; // steps without a number that a chart's description names
const dark = matchMedia("(prefers-color-scheme: dark)");

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A finite number of the API, or null. */
const finite = (value) => (typeof value === "number" ? value : null);

/**
 * A chart of `metric` (as /charts gives it).
 *
 * `group` is shared by the charts of a view: {key, range: [first, last] | null, log, zoom(range), sides: the two runs that
 * are compared, if any}; `alerts` are those of
 * this metric; `latest` is the run's attempt.
 */
export class Chart {
  constructor(metric, alerts, latest, group) {
    Object.assign(this, { metric, alerts, latest, group });
    this.readout = h("output", { class: "readout" });
    this.place = h("div", { class: "plot", tabindex: 0, role: "img", onkeydown: (event) => this.press(event) });
    const name = h("h3", { title: metric.healthy }, metric.metric);
    const unit = metric.unit && metric.unit !== "1" ? h("span", { class: "facts" }, metric.unit) : null;
    this.element = h("figure", { class: "chart", "data-metric": metric.metric }, h("figcaption", {}, name, unit, this.readout), this.place);
    this.plot = null;
    this.finer = null; // {first, last, parts}: more points of some steps
    this.redraw = () => this.plot?.redraw();
  }

  /** Draws it, as soon as it can be seen; `observer` tells when. */
  watch(observer) {
    observer.observe(this.element);
    this.label();
  }

  draw() {
    if (this.plot !== null) return;
    this.arrange();
    this.plot = new uPlot(this.options(), this.columns.data, this.place);
    this.size = new ResizeObserver(() => this.plot?.setSize({ width: this.place.clientWidth, height: HEIGHT }));
    this.size.observe(this.place);
    dark.addEventListener("change", this.redraw);
  }

  /** Brings the points into columns. */
  arrange() {
    this.shown = this.finer === null ? this.metric.parts : refined(this.metric.parts, this.finer);
    this.columns = columns(this.shown);
    this.place.dataset.points = this.columns.data[0].length;
    this.describe();
    this.place.dataset.finer = this.finer === null ? "" : `${this.finer.first} – ${this.finer.last}`;
  }

  /** Draws finer points in place of some, or no longer. */
  refine(finer) {
    if (this.finer === null && finer === null) return;
    this.finer = finer;
    if (this.plot === null) return;
    const step = this.columns.data[0][this.index];
    this.arrange();
    const index = this.columns.data[0].indexOf(step);
    this.index = index < 0 ? undefined : index;
    this.plot.setData(this.columns.data);
    this.range();
  }

  destroy() {
    dark.removeEventListener("change", this.redraw);
    this.size?.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  /** Shows what has come in, or has been said, since. */
  update(alerts, latest) {
    const attempts = this.metric.parts.length;
    Object.assign(this, { alerts, latest });
    this.label();
    if (this.plot === null) return;
    this.arrange();
    if (this.plot.series.length - 1 !== attempts) return this.anew();
    this.plot.setData(this.columns.data);
    this.range();
  }

  /** Draws it from scratch: its scale or its number of attempts has changed. */
  anew() {
    if (this.plot === null) return;
    this.destroy();
    this.draw();
  }

  /** Shows the steps that the group shows. */
  range() {
    const [steps] = this.columns.data;
    const [min, max] = this.group.range ?? [steps[0] ?? 0, steps.at(-1) ?? 1];
    this.plot?.setScale("x", { min, max: Math.max(max, min + 1) });
    this.place.dataset.drawn = this.plot?.data[0].at(-1) ?? "";
  }

  label() {
    const part = this.metric.parts.at(-1);
    this.place.dataset.last = part?.steps.at(-1) ?? "";
    this.place.dataset.alerts = this.alerts.length;
    this.describe();
    this.told(null);
  }

  /** Puts into words what is to be seen: the latest value, what is no number, and what was said. */
  describe() {
    const part = this.metric.parts.at(-1);
    const text = say("chart_label", { metric: this.metric.metric, value: number(part?.values.at(-1)), step: part?.steps.at(-1) });
    const marks = (this.shown ?? this.metric.parts).flatMap(({ steps, values }) => steps.filter((_, place) => typeof values[place] !== "number"));
    const named = [...new Set(marks)].slice(0, MARKS_TOLD).join(", ") + (marks.length > MARKS_TOLD ? ", …" : "");
    const gaps = marks.length ? [say("marks_label", { steps: named })] : [];
    this.place.setAttribute("aria-label", [text, ...gaps, ...this.alerts.map((one) => one.summary)].join(". "));
  }

  /** Says the values at the cursor; without one the latest. */
  told(index) {
    const data = this.columns?.data;
    const all = this.shown ?? this.metric.parts;
    const parts = this.group.sides ? [...all].reverse() : all;
    if (data === undefined || index === null || index === undefined) {
      const shown = this.group.sides ? parts : parts.slice(-1);
      this.readout.textContent = shown.map((part) => number(part.values.at(-1))).join(" / ");
      return;
    }
    this.index = index;
    const step = data[0][index];
    const values = parts.flatMap((one) => {
      const place = one.steps.indexOf(step);
      return place < 0 ? [] : [number(one.values[place])];
    });
    this.readout.textContent = `${say("at_step", { step })}: ${values.join(" / ") || "—"}`;
  }

  press(event) {
    const steps = this.columns?.data[0] ?? [];
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const [, to] = this.group.range ?? [steps[0], steps.at(-1)];
    if (by !== undefined && steps.length) {
      const now = Math.min(this.index ?? steps.findLastIndex((step) => step <= to), steps.length - 1);
      const index = Math.max(0, Math.min(steps.length - 1, now + by * (event.shiftKey ? STRIDE : 1)));
      const y = this.columns.data.slice(1).map((column) => column[index]).find((value) => typeof value === "number");
      const top = y === undefined ? 0 : this.plot.valToPos(y, "y");
      this.plot.setCursor({ left: this.plot.valToPos(steps[index], "x"), top });
      this.told(index);
    } else if (event.key === "+") this.group.scaled(0.5);
    else if (event.key === "-") this.group.scaled(2);
    else if (event.key === "0") this.group.zoom(null);
    else return;
    event.preventDefault();
  }

  options() {
    const axis = { stroke: () => colour("soft"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const values = (_, ticks) => ticks.map((value) => (value === null ? "" : number(value)));
    const latest = this.columns.attempts.length - 1;
    const series = this.columns.attempts.map((_, place) => ({
      stroke: () => colour(place === latest ? "curve" : this.group.sides ? "other" : "past"),
      width: 1.5,
      points: { size: 5 },
    }));
    return {
      width: this.place.clientWidth || 400,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: this.group.key, scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, y: false, bind: { mousedown: (_, __, choose) => (event) => (event.shiftKey ? this.grab(event) : choose(event)) } },
      scales: { x: { time: false, range: (_, min, max) => this.group.range ?? [min, Math.max(max, min + 1)] }, y: { distr: this.isLog ? 3 : 1, range: (_, min, max) => this.levels(min, max) } },
      series: [{}, ...series],
      axes: [{ ...axis, size: 30 }, { ...axis, size: 62, values }],
      hooks: {
        drawClear: [(plot) => this.bands(plot)],
        draw: [(plot) => this.lines(plot)],
        setCursor: [(plot) => this.told(plot.cursor.idx)],
        setSelect: [(plot) => this.selected(plot)],
      },
    };
  }

  /** Whether it is drawn on a logarithmic scale: one that isn't above 0 stays as it is. */
  get isLog() {
    return this.group.log && this.metric.parts.every(({ values }) => values.every((value) => typeof value !== "number" || value > 0));
  }

  /** From where to where: with the baselines and limits in sight. */
  levels(min, max) {
    if (min === null || max === null) return [0, 1];
    const told = this.alerts.flatMap(({ evidence }) => [finite(evidence.baseline), finite(evidence.limit)]);
    const shown = told.filter((level) => level !== null && (!this.isLog || level > 0));
    const [low, high] = [Math.min(min, ...shown), Math.max(max, ...shown)];
    if (this.isLog) return low === high ? [low / 2, high * 2] : [low, high];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low - room, high + room];
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.group.zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  }

  /** With shift a drag doesn't choose steps, it moves those that are shown. */
  grab(event) {
    const { range } = this.group;
    if (event.button !== 0 || range === null) return;
    const each = (range[1] - range[0]) / this.plot.over.clientWidth;
    const to = (later) => this.group.moved(range, (event.clientX - later.clientX) * each);
    const drag = (later) => this.group.show(to(later));
    const release = (later) => {
      removeEventListener("mousemove", drag);
      removeEventListener("mouseup", release);
      this.group.zoom(to(later));
    };
    addEventListener("mousemove", drag);
    addEventListener("mouseup", release);
  }

  /** Under the curve: from each alert's onset to its end. */
  bands(plot) {
    const { ctx, bbox } = plot;
    clip(plot);
    for (const alert of this.alerts) {
      const left = plot.valToPos(alert.onset_step, "x", true);
      const right = alert.resolved_step === null ? bbox.left + bbox.width : plot.valToPos(alert.resolved_step, "x", true);
      ctx.fillStyle = colour(alert.severity);
      ctx.globalAlpha = 0.13;
      ctx.fillRect(left, bbox.top, Math.max(2, right - left), bbox.height);
    }
    ctx.restore();
  }

  /** Over the curve: onsets, baselines, limits, where attempts begin, and what is no number. */
  lines(plot) {
    const { ctx, bbox } = plot;
    clip(plot);
    for (const alert of this.alerts) {
      upright(plot, alert.onset_step, colour(alert.severity), []);
      level(plot, finite(alert.evidence.baseline), colour("baseline"), say("baseline"));
      level(plot, finite(alert.evidence.limit), colour(alert.severity), say("limit"));
    }
    for (const part of this.group.sides ? [] : this.metric.parts.slice(1)) {
      upright(plot, part.steps[0], colour("soft"), [3, 4], say("attempt", { number: part.attempt }));
    }
    ctx.fillStyle = colour("critical");
    ctx.font = `bold ${13 * devicePixelRatio}px system-ui`;
    ctx.textAlign = "center";
    let marked = 0;
    for (const { step, value } of this.columns.marks) {
      const x = plot.valToPos(step, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      marked += 1;
      const up = value === "Infinity";
      const y = up ? bbox.top + 14 * devicePixelRatio : bbox.top + bbox.height - 4 * devicePixelRatio;
      ctx.fillText(value === "NaN" ? "×" : up ? "▲" : "▼", x, y);
    }
    this.place.dataset.marked = marked;
    ctx.restore();
  }
}

/** Lets nothing be drawn outside of the curves' place, until the context is restored. */
function clip({ ctx, bbox }) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
}

function upright(plot, step, stroke, dash, text = "") {
  const { ctx, bbox } = plot;
  const x = Math.round(plot.valToPos(step, "x", true));
  line(ctx, stroke, dash, x, bbox.top, x, bbox.top + bbox.height);
  write(ctx, stroke, text, x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio, "left");
}

function level(plot, value, stroke, text) {
  if (value === null) return;
  const { ctx, bbox } = plot;
  const y = Math.round(plot.valToPos(value, "y", true));
  if (!Number.isFinite(y)) return;
  line(ctx, stroke, [6, 4], bbox.left, y, bbox.left + bbox.width, y);
  write(ctx, stroke, text, bbox.left + 4 * devicePixelRatio, y - 3 * devicePixelRatio, "left");
}

function line(ctx, stroke, dash, ...[x1, y1, x2, y2]) {
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((one) => one * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
  ctx.setLineDash([]);
}

function write(ctx, fill, text, x, y, align) {
  ctx.fillStyle = fill;
  ctx.font = `${11 * devicePixelRatio}px system-ui`;
  ctx.textAlign = align;
  ctx.fillText(text, x, y);
}
