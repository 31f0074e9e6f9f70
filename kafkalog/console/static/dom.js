// Elements, and numbers, sizes and times as text.

// h("td.n", {title: "x"}, "text", child, [children]): null and false are left out.
export function h(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const svg = SVG.has(tag);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  for (const one of rest.flat(Infinity)) {
    if (one === null || one === undefined || one === false) continue;
    if (one instanceof Node) made.append(one);
    else if (typeof one === "object") set(made, one);
    else made.append(String(one));
  }
  return made;
}

const SVG = new Set(["svg", "path", "rect", "line", "title"]);

function set(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value);
    }
  }
}

// columns: [{head, cell(row), n, wide, sort}]; `sorted`: {by, choose(name)}.
export function table(caption, columns, rows, sorted) {
  const kinds = (one) =>
    (one.n ? ".n" : "") + (one.wide ? ".wide" : "") + (one.name ? ".name" : "");
  const head = (one) =>
    one.sort && sorted
      ? h(
          "button",
          {
            type: "button",
            "aria-pressed": String(sorted.by === one.sort),
            onclick: () => sorted.choose(one.sort),
          },
          one.head,
        )
      : one.head;
  return h(
    "div.table",
    h(
      "table",
      h("caption.hide", caption),
      h(
        "thead",
        h(
          "tr",
          columns.map((one) => h("th" + kinds(one), { scope: "col" }, head(one))),
        ),
      ),
      h(
        "tbody",
        rows.map((row) =>
          h(
            "tr",
            columns.map((one) => h("td" + kinds(one), one.cell(row))),
          ),
        ),
      ),
    ),
  );
}

export function pages(found, choose) {
  if (found.total <= found.size && !found.first) return null;
  const to = Math.min(found.first + found.size, found.total);
  const step = (text, first, off) =>
    h("button.go", { type: "button", disabled: off, onclick: () => choose(first) }, text);
  return h(
    "div.pages",
    step("Previous", Math.max(0, found.first - found.size), !found.first),
    step("Next", found.first + found.size, to >= found.total),
    h("span", `${count(found.first + 1)}–${count(to)} of ${count(found.total)}`),
  );
}

export function figures(pairs) {
  return h(
    "dl.figures",
    pairs
      .filter(Boolean)
      .map(([name, value, kind]) =>
        h("div", h("dt", name), h(kind ? `dd.${kind}` : "dd", value)),
      ),
  );
}

export function facts(pairs) {
  return h(
    "dl.facts",
    pairs.filter(Boolean).map(([name, value]) => [h("dt", name), h("dd", value)]),
  );
}

export function field(text, input, kind = "") {
  return h("label" + kind, text, input);
}

export function choice(name, values, chosen, onchange) {
  return h(
    "select",
    { name, onchange },
    (Array.isArray(values) ? values : Object.entries(values)).map(([value, text]) =>
      h("option", { value, selected: value === chosen }, text),
    ),
  );
}

const numbers = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(number) {
  return number === null || number === undefined ? "–" : numbers.format(number);
}

export function many(number, thing) {
  return `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
}

export function rate(number) {
  if (number === null || number === undefined) return "–";
  return number >= 1000 ? short.format(number) : numbers.format(Math.round(number * 10) / 10);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  for (; bytes >= 1024 && step < units.length - 1; step += 1) bytes /= 1024;
  return `${bytes >= 100 || !step ? Math.round(bytes) : bytes.toFixed(1)} ${units[step]}`;
}

const pad = (number, length = 2) => String(number).padStart(length, "0");

export function day(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

export function time(ms) {
  const at = new Date(ms);
  return (
    `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}` +
    `.${pad(at.getMilliseconds(), 3)}`
  );
}

export function moment(ms) {
  return ms === null || ms === undefined || ms < 0 ? "–" : `${day(ms)} ${time(ms)}`;
}

export function ago(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const s = Math.max(0, (Date.now() - ms) / 1000);
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}
