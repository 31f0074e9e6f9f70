// The cluster: its nodes, what ails it, its quorum, and the last hour.

import { line } from "./charts.js";
import { ago, count, figures, h, rate, size, table } from "./dom.js";

export async function cluster(view) {
  await view.every(10000, async () => {
    const value = (name) => view.get("history", { value: name }).then((found) => found.points);
    const [found, records, bytes, lag] = await Promise.all([
      view.get("cluster"),
      value("records_per_s"),
      value("bytes_per_s"),
      value("lag"),
    ]);
    view.show(
      h("h1", "Cluster"),
      h("p.lead.mono", found.id),
      figures([
        ["Brokers", count(found.nodes.length)],
        ["Topics", count(found.topics)],
        ["Partitions", count(found.partitions)],
        ["Without a leader", count(found.offline), found.offline && "bad"],
        ["Not all in sync", count(found.unhealthy_count), found.unhealthy_count && "bad"],
        found.moves && ["Moving", count(found.moves.length)],
      ]),
      h(
        "div.charts",
        line("Records per second", records, rate),
        line("Bytes per second, leaders’ logs", bytes, size),
        line("Lag of all groups", lag, count),
      ),
      h("h2", "Brokers"),
      nodes(found),
      unhealthy(found),
      moves(found),
      quorum(found),
    );
  });
}

function nodes(found) {
  const disk = (row) =>
    row.dirs
      .filter((one) => one.total > 0)
      .map((one) =>
        h(
          "div",
          `${size(one.free)} of ${size(one.total)} free`,
          one.failed && h("span.bad", " failed"),
        ),
      );
  return table(
    "Brokers",
    [
      {
        head: "Node",
        cell: (row) => [
          h("a", { href: `#/broker/${row.node}` }, row.node),
          row.node === found.controller && h("span.quiet", " controller"),
        ],
      },
      { head: "Address", name: true, cell: (row) => h("span.mono", `${row.host}:${row.port}`) },
      { head: "Rack", wide: true, cell: (row) => row.rack || "–" },
      { head: "Leads", n: true, cell: (row) => count(row.leads) },
      { head: "Replicas", n: true, wide: true, cell: (row) => count(row.replicas) },
      {
        head: "Behind",
        n: true,
        cell: (row) => (row.behind ? h("span.bad", count(row.behind)) : "0"),
      },
      { head: "Disks", n: true, wide: true, cell: disk },
    ],
    found.nodes,
  );
}

const link = (row) =>
  h(
    "a",
    { href: `#/topic/${encodeURIComponent(row.topic)}/partitions` },
    `${row.topic}-${row.partition}`,
  );

function unhealthy(found) {
  if (!found.unhealthy.length) return null;
  return [
    h("h2", "Partitions that lack replicas"),
    table(
      "Partitions that lack replicas",
      [
        { head: "Partition", name: true, cell: link },
        {
          head: "Leader",
          n: true,
          cell: (row) => (row.leader < 0 ? h("span.bad", "none") : row.leader),
        },
        { head: "Replicas", cell: (row) => row.replicas.join(", ") },
        { head: "In sync", cell: (row) => row.isr.join(", ") },
      ],
      found.unhealthy,
    ),
    found.unhealthy_count > found.unhealthy.length &&
      h("p.quiet.small", `and ${count(found.unhealthy_count - found.unhealthy.length)} more`),
  ];
}

function moves(found) {
  if (!found.moves || !found.moves.length) return null;
  return [
    h("h2", "Partitions that are moving"),
    table(
      "Partitions that are moving",
      [
        { head: "Partition", name: true, cell: link },
        { head: "Replicas", cell: (row) => row.replicas.join(", ") },
        { head: "Adding", cell: (row) => row.adding.join(", ") || "–" },
        { head: "Removing", cell: (row) => row.removing.join(", ") || "–" },
      ],
      found.moves,
    ),
  ];
}

function quorum(found) {
  const head = h("h2", "Metadata quorum");
  if (!found.quorum) return [head, h("p.quiet.small", found.hidden.quorum || "none")];
  const { leader, epoch, high_watermark: hw, replicas } = found.quorum;
  return [
    head,
    h("p.quiet.small", `Leader ${leader}, epoch ${epoch}, high watermark ${count(hw)}`),
    table(
      "Replicas of the metadata log",
      [
        {
          head: "Node",
          cell: (row) => [row.node, row.node === leader && h("span.quiet", " leader")],
        },
        { head: "Role", cell: (row) => row.kind },
        { head: "End", n: true, cell: (row) => count(row.end) },
        { head: "Lag", n: true, cell: (row) => count(row.lag) },
        { head: "Caught up", n: true, wide: true, cell: (row) => ago(row.caught_up_ms) },
      ],
      replicas,
    ),
  ];
}
