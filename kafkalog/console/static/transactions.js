// Transactional ids, and what is open.

import { ago, count, field, h, many, moment, pages, table } from "./dom.js";

export async function transactions(view) {
  const box = h("div");
  const lead = h("p.lead", { "aria-live": "polite" });
  const q = h("input", {
    type: "search",
    name: "q",
    value: view.fields.q || "",
    spellcheck: "false",
    oninput: () => change({ q: q.value }),
  });
  const open = h("input", {
    type: "checkbox",
    checked: view.fields.open === "1",
    onchange: () => change({ open: open.checked ? "1" : "" }),
  });
  let turn = 0;

  function change(fields) {
    view.keep({ first: "", ...fields });
    load().catch(
      (problem) =>
        problem.name === "AbortError" ||
        box.replaceChildren(h("p.problem", { role: "alert" }, problem.message)),
    );
  }
  async function load() {
    const mine = (turn += 1);
    const found = await view.get("transactions", view.fields);
    if (mine !== turn) return;
    lead.textContent = many(found.total, "transactional id");
    box.replaceChildren(
      ...[
        found.transactions.length
          ? table(
              "Transactional ids",
              [
                { head: "Transactional id", name: true, cell: (row) => row.name },
                {
                  head: "State",
                  cell: (row) =>
                    row.problem ? h("span.bad", { title: row.problem }, "unknown") : row.state,
                },
                {
                  head: "Open for",
                  n: true,
                  cell: (row) =>
                    h(
                      "span",
                      { title: moment(row.start_ms) },
                      row.start_ms ? ago(row.start_ms) : "–",
                    ),
                },
                {
                  head: "Partitions",
                  n: true,
                  cell: (row) =>
                    h(
                      "span",
                      { title: (row.partitions || []).map((tp) => tp.join("-")).join(", ") },
                      count(row.partition_count),
                    ),
                },
                { head: "Producer", n: true, wide: true, cell: (row) => row.producer },
                { head: "Epoch", n: true, wide: true, cell: (row) => count(row.epoch) },
                { head: "Coordinator", n: true, wide: true, cell: (row) => row.coordinator },
              ],
              found.transactions,
            )
          : h("p.quiet", "No transactional id fits."),
        pages(found, (first) => change({ first: first || "" })),
      ].filter(Boolean),
    );
  }
  view.show(
    h("h1", "Transactions"),
    lead,
    h(
      "form.tools",
      { role: "search", onsubmit: (event) => event.preventDefault() },
      field("Filter by id", q, ".grow"),
      h("label.check", open, "only open ones"),
    ),
    box,
  );
  await load();
}
