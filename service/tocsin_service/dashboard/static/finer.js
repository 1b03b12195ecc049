// Finer points of the steps that charts show.

const REST_MS = 200; // without a further zoom, before they are asked for

/**
 * Gives the function to call after each zoom of the group: once the steps that are shown stay the same it gets their points
 * by `ask(range)` (families as /charts gives them). Until then, and if that fails, those that are there do.
 */
export function refining(group, ask, signal) {
  let rest;
  let zooms = 0;
  signal.addEventListener("abort", () => clearTimeout(rest), { once: true });
  return () => {
    clearTimeout(rest);
    const zoom = (zooms += 1);
    const { range } = group;
    if (range === null) return group.refine(null);
    rest = setTimeout(async () => {
      const found = await ask(range).catch(() => null);
      if (found !== null && zoom === zooms) group.refine(found, range);
    }, REST_MS);
  };
}
