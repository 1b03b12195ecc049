// The page: its bar, the token, and which view is shown.

import { Refused, token } from "./api.js";
import * as compare from "./compare.js";
import { h, replace } from "./dom.js";
import * as incident from "./incident.js";
import * as overview from "./overview.js";
import { read, toRules, toRuns } from "./route.js";
import * as rules from "./rules.js";
import * as run from "./run.js";
import { LANGUAGES, choose, lang, say } from "./words.js";

const VIEWS = { overview, run, incident, compare, rules };
const view = document.getElementById("view");
const status = h("span", { id: "status", role: "status" });
let leave = new AbortController();
let shown = "";

/** Shows the view that the address names. */
async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const route = read();
  const key = [route.view, route.run, route.incident, route.rule].join("\0");
  showBar();
  if (key !== shown) {
    view.replaceChildren();
    if (shown) view.focus();
  }
  shown = key;
  const part = VIEWS[route.view];
  if (part === undefined) return view.replaceChildren(h("p", { class: "empty" }, say("nothing_here")));
  try {
    await part.show(view, route, { signal, status: showStatus });
  } catch (error) {
    if (!signal.aborted) tell(error);
  }
}

function tell(error) {
  if (error instanceof Refused && error.status === 401) return askForToken();
  view.replaceChildren(h("p", { class: "notice failed", role: "alert" }, say("failed", { error: error.message })));
}

function showStatus(name) {
  status.className = name;
  status.textContent = say(name);
}

function showBar() {
  showStatus("connecting");
  const languages = Object.entries(LANGUAGES).map(([code, name]) =>
    h("option", { value: code, selected: code === lang, lang: code }, name),
  );
  const select = h("select", { "aria-label": say("language"), onchange: () => (choose(select.value), show()) }, languages);
  select.value = lang;
  const forget = h("button", { class: "plain", onclick: () => (token.forget(), location.reload()) }, say("token_forget"));
  replace(
    document.getElementById("bar"),
    h("a", { class: "skip", href: "#view", onclick: (event) => (event.preventDefault(), view.focus()) }, say("skip")),
    h("a", { class: "home", href: toRuns() }, h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }), "Tocsin"),
    h("a", { href: toRules() }, say("rules")),
    status,
    h("span", { class: "space" }),
    token.get() && forget,
    select,
  );
}

function askForToken() {
  token.forget();
  const place = document.getElementById("token");
  const field = h("input", { type: "password", required: true, autocomplete: "off", name: "token" });
  const submit = (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    place.replaceChildren();
    show();
  };
  const words = [h("h1", {}, say("token_title")), h("p", {}, say("token_text"))];
  const label = h("label", {}, say("token"), field);
  place.replaceChildren(h("form", { class: "panel", onsubmit: submit }, words, label, h("button", {}, say("token_send"))));
  view.replaceChildren();
  field.focus();
}

choose(lang);
addEventListener("hashchange", show);
show();
