// Pictures of numbers.

import { h, count, size, time } from "./dom.js";

const WIDTH = 300;
const HEIGHT = 74;

// The last hour of a series; points: [[ms, value]].
export function line(name, points, show) {
  const last = points.length ? points[points.length - 1][1] : null;
  const most = Math.max(...points.map((one) => one[1]), 0);
  const words =
    points.length > 1
      ? `${name}: now ${show(last)}, at most ${show(most)} since ${time(points[0][0])}`
      : `${name}: ${show(last)}`;
  return h(
    "figure",
    h("figcaption", h("span", name), h("b", show(last))),
    h(
      "svg.line",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": words,
      },
      drawn(points, most),
    ),
    h(
      "div.ends",
      h("span", points.length > 1 ? time(points[0][0]).slice(0, 5) : "the first samples come"),
      h("span", points.length > 1 ? `peak ${show(most)}` : ""),
    ),
  );
}

function drawn(points, most) {
  const base = h("line.base", { x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 });
  if (points.length < 2) return base;
  const from = points[0][0];
  const span = points[points.length - 1][0] - from || 1;
  const x = (ms) => ((ms - from) / span) * WIDTH;
  const y = (value) => HEIGHT - 2 - (most ? value / most : 0) * (HEIGHT - 10);
  const path = points.map(
    ([ms, v], i) => `${i ? "L" : "M"}${x(ms).toFixed(1)} ${y(v).toFixed(1)}`,
  );
  const curve = path.join("");
  return [
    h("path.area", { d: `${curve}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z` }),
    base,
    h("path.curve", { d: curve }),
  ];
}

// The segments of a log, each as wide as it is large.
export function strip(found) {
  const some = found.segments;
  const all = some.reduce((sum, one) => sum + Math.max(one.size_bytes, 1), 0);
  let at = 0;
  const least = WIDTH * 0.004;
  const room = WIDTH - least * some.length;
  const rects = some.map((one) => {
    const width = least + (Math.max(one.size_bytes, 1) / all) * room;
    const kind = one.active ? "rect.active" : "rect";
    const made = h(
      kind,
      { x: at, y: 1, width, height: 44 },
      h(
        "title",
        `${count(one.base_offset)} to ${count(one.next_offset)}, ${size(one.size_bytes)}` +
          `${one.active ? ", active" : ""}`,
      ),
    );
    at += width;
    return made;
  });
  const more = found.count > some.length ? `the last ${some.length} of ` : "";
  const first = some[0];
  const last = some[some.length - 1];
  return h(
    "figure",
    h(
      "svg.strip",
      {
        viewBox: `0 0 ${WIDTH} 46`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${more}${found.count} segments, ${size(all)}`,
      },
      rects,
    ),
    h(
      "div.ends",
      h("span", count(first.base_offset)),
      h("span", `${more}${count(found.count)} segments, ${size(all)}`),
      h("span", count(last.next_offset)),
    ),
  );
}

// A part of a whole, as a bar.
export function share(part, whole) {
  const width = whole ? Math.min(1, part / whole) * 90 : 0;
  return h(
    "svg.share",
    { viewBox: "0 0 90 8", "aria-hidden": "true" },
    h("rect.all", { width: 90, height: 8, rx: 1 }),
    h("rect.part", { width, height: 8, rx: 1 }),
  );
}
