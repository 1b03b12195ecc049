// What people can do about an incident, through the API.

import { call, runPath } from "./api.js";
import { h } from "./dom.js";
import { say } from "./words.js";

const HOURS = [1, 4, 24, 168];
const AUTHOR = "tocsin.author";

/** The forms of what can be done now; `done` is called after something was. */
export function forms(incident, done) {
  const open = incident.state === "firing";
  const metrics = learnt(incident.alerts);
  return [
    form("acknowledge", say("acknowledge_text"), [author(), comment("comment", false)], acknowledge, incident, done),
    open && form("silence", say("silence_text"), [scope(incident), author(), comment("why", true)], silence, incident, done),
    open &&
      metrics.length > 0 &&
      form("rebaseline", say("rebaseline_text", { metrics: metrics.join(", ") }), [author(), comment("why", true)], rebaseline, incident, done),
  ];
}

/** The metrics whose alerts end when what was normal is forgotten: a check of data has no normal. */
export function learnt(alerts) {
  const some = alerts.filter((one) => one.state === "firing" && one.family !== "data" && one.rule !== "run_stalled");
  return [...new Set(some.map((one) => one.source))].sort();
}

function acknowledge(incident, { author: name, comment: text }) {
  return call(runPath(incident.run, `/incidents/${incident.id}/acknowledge`), { body: { author: name, comment: text } });
}

async function silence(incident, { author: name, comment: text, scope: what, hours }) {
  const given = { hours: Number(hours), author: name, comment: text };
  if (what === "run") return call(runPath(incident.run, "/mute"), { body: given });
  for (const rule of rules(incident)) {
    await call("/v1/silences", { body: { ...given, matchers: { run: literal(incident.run), rule: literal(rule) } } });
  }
}

async function rebaseline(incident, { author: name, comment: note }) {
  for (const metric of learnt(incident.alerts)) {
    await call(runPath(incident.run, "/rebaseline"), { body: { metric, author: name, note } });
  }
}

/** Only all of them together keep it silent. */
function rules(incident) {
  const firing = incident.alerts.filter((one) => one.state === "firing").map((one) => one.rule);
  return [...new Set([incident.rule, ...firing])].sort();
}

/** A pattern that matches this text alone. */
const literal = (text) => text.replace(/[*?[]/g, "[$&]");

function form(name, text, fields, act, incident, done) {
  const told = h("p", { class: "notice", role: "status", hidden: true });
  const button = h("button", {}, say(name));
  const submit = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    sessionStorage.setItem(AUTHOR, given.author);
    button.disabled = true;
    try {
      await act(incident, given);
      tell(told, "done", say(`done_${name}`));
      done();
    } catch (error) {
      tell(told, "failed", say("failed", { error: error.message }));
    }
    button.disabled = false;
  };
  return h("form", { class: "panel", id: name, onsubmit: submit }, h("h2", {}, say(name)), h("p", { class: "facts" }, text), fields, button, told);
}

function tell(place, kind, text) {
  place.hidden = false;
  place.className = `notice ${kind}`;
  place.textContent = text;
}

function author() {
  const value = sessionStorage.getItem(AUTHOR) ?? "";
  return h("label", {}, say("author"), h("input", { name: "author", required: true, maxlength: 100, autocomplete: "name", value }));
}

function comment(label, required) {
  return h("label", {}, say(label), h("input", { name: "comment", required, maxlength: 1000 }));
}

function scope(incident) {
  const scopes = [h("option", { value: "rule" }, say("these_rules", { rules: rules(incident).join(", ") })), h("option", { value: "run" }, say("whole_run"))];
  const hours = HOURS.map((one) => h("option", { value: one }, say(`hours_${one}`)));
  return [h("label", {}, say("what"), h("select", { name: "scope" }, scopes)), h("label", {}, say("how_long"), h("select", { name: "hours" }, hours))];
}
