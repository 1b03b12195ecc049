// Elements from plain data. Whatever a trainer has sent goes in as text: nothing here, or anywhere, parses HTML.

/** An element. `properties`: attributes, `class`, `on...` listeners; null and false leave one out. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An element of SVG. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Only what is surely an address of the web becomes a link. */
export function link(address, shown = address) {
  const good = typeof address === "string" && /^https?:\/\//.test(address);
  return good ? h("a", { href: address, rel: "noreferrer noopener", target: "_blank" }, shown) : h("span", {}, shown);
}

/**
 * Puts new children into an element, unless they show what is there already; and the focus back to where it was: to
 * what has the same data-key.
 */
export function replace(element, ...children) {
  const wanted = children.flat(2).filter(Boolean);
  const there = [...element.childNodes];
  if (there.length === wanted.length && there.every((one, place) => one.isEqualNode(wanted[place]))) return;
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  element.replaceChildren(...wanted);
  if (key !== undefined) [...element.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus();
}
