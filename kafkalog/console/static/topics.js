// The list of topics.

import { session } from "./api.js";
import { count, field, h, many, pages, rate, size, table } from "./dom.js";
import { creation } from "./write.js";

export async function topics(view) {
  const box = h("div", { id: "topics" });
  const q = h("input", {
    type: "search",
    name: "q",
    value: view.fields.q || "",
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => change({ q: q.value }),
  });
  const internal = h("input", {
    type: "checkbox",
    checked: view.fields.internal === "1",
    onchange: () => change({ internal: internal.checked ? "1" : "" }),
  });
  const lead = h("p.lead", { "aria-live": "polite" });
  let turn = 0;

  function change(fields) {
    view.keep({ first: "", ...fields });
    load().catch((problem) => problem.name === "AbortError" || fail(problem));
  }
  function fail(problem) {
    box.replaceChildren(h("p.problem", { role: "alert" }, problem.message));
  }
  async function load() {
    const mine = (turn += 1);
    const found = await view.get("topics", view.fields);
    if (mine !== turn) return;
    lead.textContent = summary(found);
    const measured = new Map(); // a topic may be called __proto__
    const draw = () =>
      box.replaceChildren(
        ...[
          list(found, measured, view.fields.sort || "name", (sort) => change({ sort })),
          pages(found, (first) => change({ first: first || "" })),
        ].filter(Boolean),
      );
    draw();
    const names = found.topics.map((one) => one.name);
    for (let at = 0; at < names.length; at += 25) {
      const some = await view.get("measures", { names: names.slice(at, at + 25).join(",") });
      if (mine !== turn) return;
      for (const [name, one] of Object.entries(some)) measured.set(name, one);
    }
    draw();
  }

  view.show(
    h("h1", "Topics"),
    lead,
    h(
      "form.tools",
      { role: "search", onsubmit: (event) => event.preventDefault() },
      field("Filter by name", q, ".grow"),
      h("label.check", internal, "Kafka’s own"),
    ),
    box,
    session.write &&
      creation((name) => {
        location.hash = `#/topic/${encodeURIComponent(name)}`;
      }),
  );
  await load();
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

function list(found, measured, by, choose) {
  const of = (row, name) => (measured.get(row.name) ?? {})[name];
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
