// Lists that are shown by page, and filtered: topics, groups, transactional ids, partitions.

import { field, h, pages } from "./dom.js";

// A list: its `box`, `load` to show the page that the address names, and `change` for other fields.
// `ask` gets a page and `draw` makes its parts; `after` may get more, and `show` the page again.
// An answer that comes after that of a later question is not shown.
export function paged(view, { ask, draw, after }) {
  const box = h("div");
  let turn = 0;

  async function load() {
    const mine = (turn += 1);
    const latest = () => mine === turn;
    try {
      const found = await ask();
      const show = () => {
        if (!latest()) return;
        const steps = pages(found, (first) => change({ first: first || "" }));
        box.replaceChildren(...[draw(found), steps].flat(Infinity).filter(Boolean));
      };
      show();
      if (after && latest()) await after(found, show, latest);
      return found;
    } catch (problem) {
      if (latest()) throw problem;
      return null;
    }
  }
  function change(fields) {
    view.keep({ first: "", ...fields });
    load().catch((problem) => {
      if (problem.name === "AbortError") return;
      box.replaceChildren(h("p.problem", { role: "alert" }, problem.message));
    });
  }
  return { box, load, change };
}

// A field for a part of the name.
export function filter(view, list, text) {
  const q = h("input", {
    type: "search",
    name: "q",
    value: view.fields.q || "",
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => list.change({ q: q.value }),
  });
  return field(text, q, ".grow");
}

// A box to tick; ticked, the field is 1.
export function tick(view, list, name, text) {
  const box = h("input", {
    type: "checkbox",
    checked: view.fields[name] === "1",
    onchange: () => list.change({ [name]: box.checked ? "1" : "" }),
  });
  return h("label.check", box, text);
}

// Show a view that is one list; `more` follows it.
export async function listed(view, title, lead, list, tools, more) {
  view.show(
    h("h1", title),
    lead,
    h(
      "form.tools",
      { role: "search", onsubmit: (event) => event.preventDefault() },
      tools,
    ),
    list.box,
    more,
  );
  await list.load();
}
