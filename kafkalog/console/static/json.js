// A value: JSON as a tree that folds, anything else as it is.

import { h } from "./dom.js";

const OPEN_DEPTH = 2;
const CHILDREN_MAX = 500;

export function json(value) {
  if (value === null) return h("p.quiet", "null: it deletes the key in a compacted topic");
  if (value.text === undefined) return h("pre.value", { tabindex: 0 }, value.base64);
  try {
    const found = JSON.parse(value.text);
    if (found !== null && typeof found === "object") {
      return h("div.value", h("ul.tree", node(null, found, 0)));
    }
  } catch {
    // It is no JSON.
  }
  return h("pre.value", { tabindex: 0 }, value.text);
}

function node(key, value, depth) {
  const name = key === null ? null : [h("span.k", key), ": "];
  if (value === null || typeof value !== "object") return h("li", name, JSON.stringify(value));
  const list = Array.isArray(value);
  const entries = Object.entries(value);
  const text = list ? `[${entries.length}]` : `{${entries.length}}`;
  const details = h("details", { open: depth < OPEN_DEPTH }, h("summary", name, text));
  const fill = () => {
    if (details.querySelector("ul")) return;
    details.append(
      h(
        "ul",
        entries.slice(0, CHILDREN_MAX).map(([k, v]) => node(k, v, depth + 1)),
        entries.length > CHILDREN_MAX && h("li.quiet", `${entries.length - CHILDREN_MAX} more`),
      ),
    );
  };
  if (depth < OPEN_DEPTH) fill();
  else details.addEventListener("toggle", fill, { once: true });
  return h("li", details);
}
