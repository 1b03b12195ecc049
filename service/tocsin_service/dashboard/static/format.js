// Numbers and times for people.

import { lang, say } from "./words.js";

/** A number of the API ("NaN", "Infinity" are texts there), short. */
export function number(value) {
  if (value === null || value === undefined) return "—";
  if (typeof value === "string") return { Infinity: "∞", "-Infinity": "-∞" }[value] ?? value;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(5)));
}

/** Seconds as "350 ms", "4.2 s", "3 min", "5 h", "2 d". */
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 86400 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** How long ago a Unix time was. */
export const ago = (time) => say("ago", { time: duration(Math.max(0, Date.now() / 1000 - time)) });

/** A Unix time. */
export function moment(time) {
  return new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "short" }).format(new Date(time * 1000));
}

// Control characters, and those that turn the direction of writing or can't be seen; not line feeds, tabs and joiners.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A text that somebody else wrote, with what can't be seen written out, as "⟨U+202E⟩". */
export function visible(text) {
  return text.replace(/\r\n/g, "\n").replace(UNSEEN, (char) => `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
