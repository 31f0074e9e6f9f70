// The list of topics.

import { session } from "./api.js";
import { count, h, many, rate, size, table } from "./dom.js";
import { filter, listed, paged, tick } from "./lists.js";
import { creation } from "./write.js";

const MEASURED = 25; // names of one request

export async function topics(view) {
  const lead = h("p.lead", { "aria-live": "polite" });
  const list = paged(view, {
    ask: async () => {
      const found = await view.get("topics", view.fields);
      return { ...found, measured: new Map() }; // a topic may be called __proto__
    },
    draw: (found) => {
      lead.textContent = summary(found);
      return rows(found, view.fields.sort || "name", (sort) => list.change({ sort }));
    },
    after: async (found, show, latest) => {
      const names = found.topics.map((one) => one.name);
      for (let at = 0; at < names.length && latest(); at += MEASURED) {
        const some = names.slice(at, at + MEASURED).join(",");
        const more = await view.get("measures", { names: some });
        for (const [name, one] of Object.entries(more)) found.measured.set(name, one);
      }
      show();
    },
  });
  const tools = [
    filter(view, list, "Filter by name"),
    tick(view, list, "internal", "Kafka’s own"),
  ];
  const made = (name) => {
    location.hash = `#/topic/${encodeURIComponent(name)}`;
  };
  await listed(view, "Topics", lead, list, tools, session.write && creation(made));
}

function summary(found) {
  const words = [`${many(found.total, "topic")}, ${many(found.partitions, "partition")}`];
  if (found.offline) words.push(`${count(found.offline)} without a leader`);
  if (found.under) words.push(`${count(found.under)} not all in sync`);
  return words.join(", ");
}

function health(row) {
  if (row.offline) return h("span.bad", `${count(row.offline)} without a leader`);
  if (row.under) return h("span.warn", `${count(row.under)} not all in sync`);
  return h("span.quiet", "all in sync");
}

function rows(found, by, choose) {
  const of = (row, name) => (found.measured.get(row.name) ?? {})[name];
  if (!found.topics.length) return h("p.quiet", "No topic fits.");
  return table(
    "Topics",
    [
      {
        head: "Topic",
        sort: "name",
        name: true,
        cell: (row) => h("a", { href: `#/topic/${encodeURIComponent(row.name)}` }, row.name),
      },
      { head: "Partitions", sort: "partitions", n: true, cell: (row) => count(row.partitions) },
      { head: "Replicas", n: true, wide: true, cell: (row) => row.replication },
      { head: "Records", n: true, cell: (row) => count(of(row, "records")) },
      { head: "Per second", n: true, wide: true, cell: (row) => rate(of(row, "per_s")) },
      { head: "Bytes", n: true, wide: true, cell: (row) => size(of(row, "bytes")) },
      { head: "Health", sort: "health", wide: true, cell: health },
    ],
    found.topics,
    { by, choose },
  );
}
