// The address of a view: what stands behind the # is never sent to anybody, and can be shared as it is.

/** The view's name, its parts, and its query. */
export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return { view: "nowhere", query: new URLSearchParams() };
  }
  const found = { query: new URLSearchParams(query) };
  if (parts.length === 0) return { view: "overview", ...found };
  if (parts[0] === "runs" && parts.length === 2) return { view: "run", run: parts[1], ...found };
  if (parts[0] === "runs" && parts[2] === "incidents" && parts.length === 4) {
    return { view: "incident", run: parts[1], incident: parts[3], ...found };
  }
  if (parts[0] === "rules" && parts.length <= 2) return { view: "rules", rule: parts[1], ...found };
  if (parts[0] === "compare" && parts.length === 1) return { view: "compare", ...found };
  return { view: "nowhere", ...found };
}

export const toRuns = () => "#/";
export const toRun = (run) => `#/runs/${encodeURIComponent(run)}`;
export const toIncident = (run, incident) => `${toRun(run)}/incidents/${encodeURIComponent(incident)}`;

/** Changes the query of the view that is shown, without showing it anew. Empty values go. */
export function remember(values) {
  const [path, query = ""] = (location.hash || "#/").split("?");
  const all = new URLSearchParams(query);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "" || value === false) all.delete(name);
    else all.set(name, value);
  }
  const text = all.toString();
  history.replaceState(null, "", text ? `${path}?${text}` : path);
}
export const toRules = () => "#/rules";
export const toRule = (rule) => `#/rules/${encodeURIComponent(rule)}`;
export const toCompare = (run) => `#/compare?a=${encodeURIComponent(run)}`;
