// The words of the page in the reader's language. What the service says of alerts comes in that language by itself.

import en from "./texts/en.js";
import zh from "./texts/zh.js";

const TEXTS = { en, zh };
const KEY = "tocsin.lang";

/** The languages and what they call themselves. */
export const LANGUAGES = { en: "English", zh: "中文" };

export let lang = chosen();

function chosen() {
  const wished = [localStorage.getItem(KEY), ...navigator.languages.map((one) => one.slice(0, 2).toLowerCase())];
  return wished.find((one) => one in TEXTS) ?? "en";
}

/** Changes the language for now and for later. */
export function choose(language) {
  lang = language;
  localStorage.setItem(KEY, language);
  document.documentElement.lang = language;
}

/** The text of this name, with its values: say("since", {step: 3}). */
export function say(name, values = {}) {
  const text = TEXTS[lang][name] ?? en[name] ?? name;
  return text.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
}
