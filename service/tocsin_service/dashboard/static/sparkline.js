// A small curve without axes.

import { svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;

/** The values as a line; gaps and marks where they are no numbers. */
export function sparkline(values) {
  const finite = values.filter((value) => typeof value === "number");
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const x = (index) => 2 + (index * (WIDTH - 4)) / Math.max(1, values.length - 1);
  const y = (value) => (high > low ? HEIGHT - 3 - ((value - low) / (high - low)) * (HEIGHT - 6) : HEIGHT / 2);
  let path = "";
  const marks = [];
  values.forEach((value, index) => {
    if (typeof value !== "number") {
      marks.push(svg("circle", { class: "nan", cx: x(index).toFixed(1), cy: HEIGHT - 3, r: 2 }));
    } else {
      const joins = index > 0 && typeof values[index - 1] === "number";
      path += `${joins ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    }
  });
  return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" }, svg("path", { d: path }), marks);
}
