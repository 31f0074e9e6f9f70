// One topic: its messages, its partitions with their segments, its settings.

import { session } from "./api.js";
import { line, share, strip } from "./charts.js";
import { choice, count, field, h, many, rate, size, table } from "./dom.js";
import { paged } from "./lists.js";
import { messages } from "./messages.js";
import { settingTables } from "./settings.js";
import { deletion } from "./write.js";

const TABS = { messages: "Messages", partitions: "Partitions", settings: "Settings" };

export async function topic(view) {
  const name = view.words[1];
  const tab = Object.hasOwn(TABS, view.words[2] ?? "") ? view.words[2] : "messages";
  const here = `#/topic/${encodeURIComponent(name)}`;
  const found = await view.get("partitions", { name, size: 1 });
  const box = h("div");
  const facts = [
    many(found.topic.partitions, "partition"),
    many(found.topic.replication, "replica"),
  ];
  if (found.topic.id) facts.push(found.topic.id);
  view.show(
    h("p.crumb", h("a", { href: "#/topics" }, "Topics")),
    h("h1", name),
    h("p.lead.small", facts.join(" · ")),
    h(
      "nav.tabs",
      { "aria-label": "Topic" },
      Object.entries(TABS).map(([key, text]) =>
        h("a", { href: `${here}/${key}`, "aria-current": key === tab && "page" }, text),
      ),
    ),
    box,
  );
  const views = { messages, partitions, settings };
  await views[tab](view, name, box, found.topic);
}

async function partitions(view, name, box) {
  const picture = h("div");
  const charts = h("div.charts");
  const segments = (partition) =>
    segmentsOf(view, name, partition, picture).catch((problem) => {
      if (problem.name === "AbortError") return;
      picture.replaceChildren(h("p.problem", { role: "alert" }, problem.message));
    });
  const list = paged(view, {
    ask: () => view.get("partitions", { name, ...view.fields }),
    draw: (found) => rows(name, found.rows, segments),
  });
  const only = choice(
    "only",
    { all: "all", unhealthy: "not all in sync" },
    view.fields.only || "all",
    () => list.change({ only: only.value }),
  );
  box.replaceChildren(charts, h("form.tools", field("Partitions", only)), list.box, picture);
  const points = (value) =>
    view.get("history", { kind: "topic", name, value }).then((one) => one.points);
  const [records, bytes, found] = await Promise.all([
    points("records_per_s"),
    points("bytes_per_s"),
    list.load(),
  ]);
  charts.replaceChildren(
    line("Records per second", records, rate),
    line("Bytes per second", bytes, size),
  );
  if (found && found.rows.length) await segments(found.rows[0].partition);
}

async function segmentsOf(view, name, partition, picture) {
  const found = await view.get("layout", { name, partition });
  picture.replaceChildren(
    h("h2", `Segments of partition ${partition}`),
    found.segments && found.segments.length
      ? strip(found)
      : h(
          "p.quiet.small",
          "The segments are known to the console of the broker that has them.",
        ),
  );
}

function rows(name, some, segments) {
  const most = Math.max(...some.map((row) => (row.end || 0) - (row.start || 0)), 1);
  const behind = (row) => row.isr.length < row.replicas.length;
  const known = (row) => row.end !== null && row.start !== null;
  return table(
    `Partitions of ${name}`,
    [
      {
        head: "Partition",
        cell: (row) =>
          h(
            "button.plain",
            {
              type: "button",
              title: "show its segments",
              onclick: () => segments(row.partition),
            },
            row.partition,
          ),
      },
      {
        head: "Leader",
        n: true,
        cell: (row) => (row.leader < 0 ? h("span.bad", "none") : row.leader),
      },
      { head: "Replicas", cell: (row) => row.replicas.join(", ") },
      {
        head: "In sync",
        cell: (row) => (behind(row) ? h("span.bad", row.isr.join(", ")) : row.isr.join(", ")),
      },
      { head: "Epoch", n: true, wide: true, cell: (row) => row.epoch },
      { head: "First offset", n: true, wide: true, cell: (row) => count(row.start) },
      { head: "End", n: true, cell: (row) => count(row.end) },
      {
        head: "Records",
        n: true,
        wide: true,
        cell: (row) =>
          known(row)
            ? [count(row.end - row.start), " ", share(row.end - row.start, most)]
            : "–",
      },
      {
        head: "Bytes by node",
        wide: true,
        n: true,
        cell: (row) =>
          Object.entries(row.bytes).map(([node, bytes]) =>
            h("div", h("span.quiet", `${node}: `), size(bytes)),
          ),
      },
    ],
    some,
  );
}

async function settings(view, name, box) {
  await settingTables(view, "topic", name, box);
  if (session.write) box.append(deletion(name));
}
