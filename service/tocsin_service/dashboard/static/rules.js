// The rule catalogue: every rule in force, what it watches, when it fires, what that means and what to do.

import { call } from "./api.js";
import { h, link, replace } from "./dom.js";
import { remember, toRule } from "./route.js";
import { say } from "./words.js";

export async function show(view, { rule: wanted, query }, { signal, status }) {
  document.title = `${say("rules")} · Tocsin`;
  const { rules } = await call("/v1/rules", { signal });
  const list = h("div", { class: "rules" });
  const count = h("p", { class: "facts", role: "status" });
  const draw = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rules.filter((rule) => words.every((word) => texts(rule).includes(word)));
    count.textContent = say("rules_shown", { shown: found.length, total: rules.length });
    const groups = [...new Set(found.map((rule) => rule.family))];
    replace(list, groups.map((family) => group(found.filter((rule) => rule.family === family), wanted)));
  };
  const search = h("input", { type: "search", name: "q", value: query.get("q") ?? "", oninput: () => (remember({ q: search.value }), draw(search.value)) });
  view.replaceChildren(h("h1", {}, say("rules")), h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, h("label", { class: "wide" }, say("search_rules"), search)), count, list);
  draw(search.value);
  status("loaded");
  [...list.querySelectorAll("details")].find((one) => one.dataset.rule === wanted)?.scrollIntoView();
}

const texts = (rule) => [rule.name, rule.title, rule.family_title, rule.meaning, ...rule.metrics].join("\n").toLowerCase();

function group(rules, wanted) {
  return h("section", {}, h("h2", {}, rules[0].family_title), rules.map((rule) => entry(rule, rule.name === wanted)));
}

function entry(rule, open) {
  const facts = [
    [say("metric"), rule.metrics.join(", ")],
    [say("fires"), say("fires_text", rule)],
    [say("tests"), h("ul", { class: "tests", lang: "en" }, rule.tests.map((one) => h("li", {}, one)))],
    [say("source"), rule.source],
  ];
  return h(
    "details",
    { class: `panel ${rule.severity}`, "data-rule": rule.name, open },
    h("summary", {}, h("h3", {}, rule.title), " ", h("span", { class: `badge ${rule.severity}` }, say(rule.severity)), " ", h("a", { class: "facts", href: toRule(rule.name) }, rule.name)),
    h("p", {}, rule.meaning),
    h("ol", {}, rule.remedies.map((one) => h("li", {}, one))),
    h("dl", { class: "long" }, facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))),
    rule.runbook && h("p", { class: "facts" }, `${say("runbook")}: `, link(rule.runbook)),
  );
}
