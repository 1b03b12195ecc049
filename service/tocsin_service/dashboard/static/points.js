// The points of a metric as the chart wants them: one column for each attempt, and apart what is no number.

/** Adds newer points to parts that are known; a step that is known already keeps its value. */
export function append(parts, newer) {
  for (const part of newer) {
    const known = parts.find((one) => one.attempt === part.attempt);
    if (known === undefined) {
      parts.push(part);
      continue;
    }
    const last = known.steps.at(-1) ?? -1;
    const from = part.steps.findIndex((step) => step > last);
    if (from >= 0) {
      known.steps.push(...part.steps.slice(from));
      known.values.push(...part.values.slice(from));
    }
  }
}

/**
 * {data: [x, y of each attempt], attempts, marks: [{step, value}]}: in a column null is a gap and undefined no point.
 */
export function columns(parts) {
  const steps = [...new Set(parts.flatMap((part) => part.steps))].sort((a, b) => a - b);
  const index = new Map(steps.map((step, place) => [step, place]));
  const marks = [];
  const ys = parts.map((part) => {
    const column = new Array(steps.length).fill(undefined);
    part.steps.forEach((step, place) => {
      const value = part.values[place];
      if (typeof value !== "number") marks.push({ step, value });
      column[index.get(step)] = typeof value === "number" ? value : null;
    });
    return column;
  });
  return { data: [steps, ...ys], attempts: parts.map((part) => part.attempt), marks };
}

/** The parts of a whole curve with those of `finer` in place of their points from step `first` to `last`. */
export function refined(parts, { first, last, parts: finer }) {
  return parts.map((part) => {
    const fine = finer.find((one) => one.attempt === part.attempt);
    if (fine === undefined) return part;
    const begin = part.steps.findIndex((step) => step >= first);
    const end = part.steps.findIndex((step) => step > last);
    const before = begin < 0 ? part.steps.length : begin;
    const after = end < 0 ? part.steps.length : end;
    const spliced = (all, some) => [...all.slice(0, before), ...some, ...all.slice(after)];
    return { ...part, steps: spliced(part.steps, fine.steps), values: spliced(part.values, fine.values) };
  });
}

/** How many points there are. */
export const count = (parts) => parts.reduce((sum, part) => sum + part.steps.length, 0);
