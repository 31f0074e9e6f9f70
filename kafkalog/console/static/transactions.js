// Transactional ids, and what is open.

import { ago, count, h, many, moment, table } from "./dom.js";
import { filter, listed, paged, tick } from "./lists.js";

export async function transactions(view) {
  const lead = h("p.lead", { "aria-live": "polite" });
  const list = paged(view, {
    ask: () => view.get("transactions", view.fields),
    draw: (found) => {
      lead.textContent = many(found.total, "transactional id");
      if (!found.transactions.length) return h("p.quiet", "No transactional id fits.");
      return rows(found.transactions);
    },
  });
  const tools = [
    filter(view, list, "Filter by id"),
    tick(view, list, "open", "only open ones"),
  ];
  await listed(view, "Transactions", lead, list, tools);
}

function rows(some) {
  const partitions = (row) => (row.partitions || []).map((tp) => tp.join("-")).join(", ");
  return table(
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
          h("span", { title: moment(row.start_ms) }, row.start_ms ? ago(row.start_ms) : "–"),
      },
      {
        head: "Partitions",
        n: true,
        cell: (row) => h("span", { title: partitions(row) }, count(row.partition_count)),
      },
      { head: "Producer", n: true, wide: true, cell: (row) => row.producer },
      { head: "Epoch", n: true, wide: true, cell: (row) => count(row.epoch) },
      { head: "Coordinator", n: true, wide: true, cell: (row) => row.coordinator },
    ],
    some,
  );
}
