// Groups: who reads, and how far behind.

import { session } from "./api.js";
import { line } from "./charts.js";
import { choice, count, field, figures, h, many, table } from "./dom.js";
import { filter, listed, paged } from "./lists.js";
import { reset } from "./write.js";

const KINDS = {
  "": "all",
  classic: "classic",
  consumer: "consumer",
  share: "share",
  streams: "streams",
};

export async function groups(view) {
  const lead = h("p.lead", { "aria-live": "polite" });
  const list = paged(view, {
    ask: () => view.get("groups", view.fields),
    draw: (found) => {
      lead.textContent = many(found.total, "group");
      return found.groups.length ? rows(found.groups) : h("p.quiet", "No group fits.");
    },
  });
  const kind = choice("kind", KINDS, view.fields.kind || "", () =>
    list.change({ kind: kind.value }),
  );
  const tools = [filter(view, list, "Filter by name"), field("Type", kind)];
  await listed(view, "Groups", lead, list, tools);
}

function rows(some) {
  return table(
    "Groups",
    [
      {
        head: "Group",
        name: true,
        cell: (row) => h("a", { href: `#/group/${encodeURIComponent(row.name)}` }, row.name),
      },
      { head: "Type", cell: (row) => row.kind.toLowerCase() },
      { head: "State", cell: (row) => row.state || "–" },
      { head: "Protocol", wide: true, cell: (row) => h("span.quiet", row.protocol || "–") },
      { head: "Members", n: true, wide: true, cell: (row) => count(row.members) },
      { head: "Lag", n: true, cell: (row) => count(row.lag) },
    ],
    some,
  );
}

export async function group(view) {
  const name = view.words[1];
  const write = session.write ? reset(name) : null;
  const box = h("div");
  view.show(h("p.crumb", h("a", { href: "#/groups" }, "Groups")), h("h1", name), box, write);
  await view.every(5000, async () => {
    const [found, lag, done] = await Promise.all([
      view.get("group", { name }),
      ...["lag", "records_per_s"].map((value) =>
        view.get("history", { kind: "group", name, value }),
      ),
    ]);
    const kept = box.querySelector("[data-open]");
    const open = kept && kept.open;
    box.replaceChildren(
      ...[
        figures([
          ["State", found.state],
          ["Members", count(found.member_count)],
          ["Lag", count(found.lag)],
          ["Coordinator", found.coordinator],
        ]),
        h(
          "div.charts",
          line("Lag", lag.points, count),
          line("Records done per second", done.points, (v) =>
            v === null ? "–" : count(Math.round(v)),
          ),
        ),
        h("h2", "Partitions"),
        lags(found),
        ...members(found, open),
      ].filter(Boolean),
    );
  });
}

function lags(found) {
  if (!found.partitions.length) return h("p.quiet", "It has no offsets.");
  const owner = new Map(
    found.members.flatMap((one) => one.partitions.map((tp) => [tp.join("\n"), one.client])),
  );
  return table(
    "Partitions of the group",
    [
      {
        head: "Partition",
        name: true,
        cell: (row) =>
          h(
            "a",
            {
              href: `#/topic/${encodeURIComponent(row.topic)}/messages?partition=${row.partition}`,
            },
            `${row.topic}-${row.partition}`,
          ),
      },
      { head: "Offset", n: true, cell: (row) => count(row.offset) },
      { head: "End", n: true, wide: true, cell: (row) => count(row.end) },
      { head: "Lag", n: true, cell: (row) => (row.lag === null ? "–" : count(row.lag)) },
      {
        head: "Member",
        wide: true,
        cell: (row) => owner.get(`${row.topic}\n${row.partition}`) || "–",
      },
    ],
    found.partitions,
  );
}

function members(found, open) {
  if (!found.members.length) return [];
  return [
    h("h2", "Members"),
    h(
      "details",
      { "data-open": true, open: open !== false },
      h(
        "summary.small",
        `${many(found.member_count, "member")}, assignor ${found.assignor || "–"}`,
      ),
      table(
        "Members",
        [
          { head: "Client", name: true, cell: (row) => row.client },
          { head: "Host", wide: true, cell: (row) => h("span.mono", row.host) },
          { head: "Partitions", n: true, cell: (row) => count(row.partition_count) },
          {
            head: "Member id",
            wide: true,
            name: true,
            cell: (row) => h("span.mono.quiet", row.instance || row.id),
          },
        ],
        found.members,
      ),
    ),
  ];
}
