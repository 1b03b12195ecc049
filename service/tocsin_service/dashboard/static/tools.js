// The bar above charts: which steps they show, their scale, and which of them are to be seen.

import { h } from "./dom.js";
import { say } from "./words.js";

/** The range of steps and the scale that the address asks for, as a group takes them. */
export function wished(query) {
  const range = ["from", "to"].map((name) => Number(query.get(name) || NaN));
  return [range.every(Number.isFinite) && range[1] > range[0] ? range : null, query.get("log") === "1"];
}

/** The bar of a group whose charts lie in `place`; `zoomed` is called after each zoom. */
export function toolbar(group, place, zoomed) {
  const range = h("output", { class: "range" });
  const tell = () => (range.textContent = group.range ? group.range.join(" – ") : say("zoom_all"));
  group.onzoom = () => (tell(), zoomed());
  tell();
  const button = (name, sign, act) => h("button", { type: "button", class: "tool", title: say(name), "aria-label": say(name), onclick: act }, sign);
  const log = h("input", { type: "checkbox", onchange: () => group.scale(log.checked) });
  log.checked = group.log;
  const search = h("input", { type: "search", "aria-label": say("find_metric"), placeholder: say("find_metric"), oninput: () => find(place, search.value) });
  return h(
    "div",
    { class: "tools", role: "toolbar", "aria-label": say("curves") },
    button("pan_left", "←", () => group.pan(-0.5)),
    button("zoom_in", "+", () => group.scaled(0.5)),
    button("zoom_out", "−", () => group.scaled(2)),
    button("pan_right", "→", () => group.pan(0.5)),
    h("button", { type: "button", class: "tool", onclick: () => group.zoom(null) }, say("zoom_all")),
    range,
    h("label", { class: "check" }, log, say("log_scale")),
    search,
    h("p", { class: "facts keys" }, say("chart_keys")),
  );
}

function find(place, text) {
  const wanted = text.toLowerCase();
  for (const family of place.querySelectorAll("details")) {
    let some = false;
    for (const chart of family.querySelectorAll("figure")) {
      chart.hidden = !chart.dataset.metric.toLowerCase().includes(wanted);
      some ||= !chart.hidden;
    }
    family.hidden = !some;
  }
}
