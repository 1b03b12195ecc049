// The service's API: the token goes in a header and nowhere else, least of all into an address.

import { lang } from "./words.js";

const KEY = "tocsin.token";
const RETRY_MS = [500, 1000, 2000, 5000];

/** Something that the service refused, in its own words. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** The path of a run, or of what belongs to it. */
export const runPath = (run, rest = "") => `/v1/runs/${encodeURIComponent(run)}${rest}`;

/** The answer's JSON. `query`: lists give a parameter more than once; null leaves it out. */
export async function call(path, { query = {}, body, signal } = {}) {
  const response = await send(path, query, body, signal);
  return response.json();
}

async function send(path, query, body, signal) {
  const address = new URL(path, location.origin);
  for (const [name, value] of Object.entries({ lang, ...query })) {
    for (const one of [value].flat()) if (one !== null && one !== undefined) address.searchParams.append(name, one);
  }
  const headers = token.get() ? { authorization: `Bearer ${token.get()}` } : {};
  const request = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(address, { headers, signal, cache: "no-store", ...request });
  if (!response.ok) throw new Refused(response.status, await reason(response));
  return response;
}

async function reason(response) {
  try {
    const told = await response.json();
    const problems = (told.problems ?? []).map((one) => `${one.field}: ${one.problem}`);
    return [told.error, ...problems].join("; ");
  } catch {
    return `HTTP ${response.status}`;
  }
}

/**
 * Calls `changed` with where things stand, now and whenever that has changed, until `signal` aborts. The browser's own
 * EventSource can't send a token in a header, so the stream is read here.
 */
export async function listen(run, changed, status, signal) {
  for (let tries = 0; !signal.aborted; tries += 1) {
    try {
      const response = await send("/v1/events", { run, lang: null }, undefined, signal);
      status("live");
      for await (const data of events(response.body)) {
        tries = 0;
        changed(JSON.parse(data));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && [401, 403, 404].includes(error.status)) return status("lost");
      status("lost");
    }
    await pause(RETRY_MS[Math.min(tries, RETRY_MS.length - 1)], signal);
  }
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n").filter((line) => line.startsWith("data:"));
      if (lines.length) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done); // or there would be one more with every stream that ends
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", done);
  });
}
