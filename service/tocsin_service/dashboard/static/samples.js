// What the model wrote when an alert began, beside what it had written before: where rollouts are kept.

import { call } from "./api.js";
import { h, replace } from "./dom.js";
import { number, visible } from "./format.js";
import { say } from "./words.js";

const ROWS = 3; // of each kind and step
const MOST = 4000; // characters of a text that are loaded
const FOLDED = 300; // characters from which on a text is folded,
const LINES = 12; // and lines

/** The samples of an incident's alerts: a section for each, which stays what it is when the view is drawn again. */
export class Samples {
  constructor(signal) {
    this.signal = signal;
    this.sections = new Map();
  }

  /** The alert's section, or null where there is nothing to show; the incident's first one is open. */
  of(alert) {
    if (!alert.samples) return null;
    if (!this.sections.has(alert.id)) this.sections.set(alert.id, this.section(alert, this.sections.size === 0));
    return this.sections.get(alert.id);
  }

  section(alert, open) {
    const place = h("div", { class: "pairs" });
    let there = false;
    const load = async () => {
      if (there || !element.open) return;
      there = true;
      try {
        const found = await call(alert.samples, { query: { lang: null, limit: ROWS, text: MOST }, signal: this.signal });
        there = found.onset !== null; // else they may still come: whoever opens it again asks again
        replace(place, there ? found.evidence.map((one) => pair(one, found)) : h("p", { class: "facts" }, say("no_samples")));
      } catch (error) {
        there = false;
        if (error.name !== "AbortError") replace(place, h("p", { class: "notice failed" }, say("failed", { error: error.message })));
      }
    };
    const element = h("details", { class: "samples", open, ontoggle: load }, h("summary", {}, say("samples")), place);
    return element;
  }
}

/** One extreme: at the onset, and at the last healthy step beside it. */
function pair({ sort, order, onset, healthy }, found) {
  const resumed = found.attempt > 0;
  const sides = [side("onset", found.onset, onset, resumed), side("healthy", found.healthy, healthy, resumed)];
  return h("section", { "data-extreme": `${sort} ${order}` }, h("h4", {}, say(`extreme_${sort}_${order}`)), h("div", { class: "sides" }, sides));
}

function side(name, summary, rows, resumed) {
  if (summary === null) return h("div", { class: name }, h("p", { class: "facts" }, say("no_healthy")));
  const facts = figures({ rows: summary.rows, reward_mean: summary.reward_mean, length_mean: summary.length_mean, repetition_mean: summary.repetition_mean });
  return h("div", { class: name }, h("h5", {}, [say(`samples_${name}`, { step: summary.step }), resumed && say("attempt", { number: summary.attempt })].filter(Boolean).join(" · ")), h("p", { class: "facts" }, facts), rows.map(sample));
}

function sample(row) {
  const scores = Object.entries(row.scores ?? {}).map(([name, value]) => `${visible(name)} ${number(value)}`);
  const words = ["finish_reason", "domain", "group"].filter((name) => row[name] !== null).map((name) => `${say(name)} ${visible(row[name])}`);
  const facts = figures({ reward: row.reward, advantage: row.advantage, length: row.length, chars: row.chars, repetition: row.repetition });
  return h(
    "article",
    { class: "sample" },
    h("p", { class: "facts" }, [facts, ...words, ...scores].join(" · ")),
    written("prompt", row.prompt),
    written("response", row.response, row.chars),
    written("ground_truth", row.ground_truth),
  );
}

/** Those numbers that there are. */
function figures(values) {
  const told = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return told.map(([name, value]) => `${say(`${name}_of`)} ${number(value)}`).join(" · ");
}

/** A text as it is, with what can't be seen made visible; `chars`: how long it was before it was cut. */
function written(name, text, chars = 0) {
  if (text === null) return null;
  const cut = chars > [...text].length ? h("p", { class: "facts" }, say("cut", { chars })) : null;
  const whole = h("pre", { class: name, dir: "auto" }, visible(text));
  const lines = text.split("\n", LINES + 1);
  if (text.length <= FOLDED && lines.length <= LINES) return [h("h6", {}, say(name)), whole, cut];
  const start = visible(lines.slice(0, LINES).join("\n").slice(0, FOLDED));
  return h("details", { class: "folded" }, h("summary", {}, h("h6", {}, say(name)), h("pre", { dir: "auto" }, `${start} …`)), whole, cut);
}
