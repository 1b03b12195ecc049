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
