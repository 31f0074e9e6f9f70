// Settings of a topic or a broker, and where each comes from.

import { h, table } from "./dom.js";

const INNATE = ["default", "properties file"];

export async function settingTables(view, kind, name, box) {
  const found = await view.get("configs", { kind, name });
  const own = found.filter((row) => !INNATE.includes(row.source));
  const rest = found.filter((row) => INNATE.includes(row.source));
  const columns = [
    { head: "Setting", name: true, cell: (row) => h("span", { title: row.text }, row.name) },
    {
      head: "Value",
      name: true,
      cell: (row) => h("span.mono", row.secret ? "hidden" : row.value || "–"),
    },
    { head: "From", wide: true, cell: (row) => h("span.quiet", row.source) },
  ];
  box.replaceChildren(
    h("h2", "Set in the cluster"),
    own.length ? table("Settings that were set", columns, own) : h("p.quiet.small", "None."),
    h("h2", "Defaults, and the broker’s file"),
    table("Other settings", columns, rest),
  );
}

export async function broker(view) {
  const node = view.words[1];
  const box = h("div");
  view.show(h("p.crumb", h("a", { href: "#/" }, "Cluster")), h("h1", `Broker ${node}`), box);
  await settingTables(view, "broker", node, box);
}
