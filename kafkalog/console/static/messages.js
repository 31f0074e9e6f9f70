// Messages of a topic: looked for, and followed.

import { session } from "./api.js";
import { choice, count, facts, field, h, moment, size, time } from "./dom.js";
import { json } from "./json.js";
import { production } from "./write.js";

const FROM = {
  last: "the last ones",
  first: "the beginning",
  offset: "an offset",
  time: "a time",
};
const SHOWN_MAX = 500;
const FOLLOW_MS = 1000;
const LISTED_MAX = 100;
const ALL_MAX = 500; // the server reads no more partitions at once

export async function messages(view, name, box, topic) {
  const list = h("ol.records", { "aria-label": "Messages" });
  const note = h("p.quiet.small", { role: "status" });
  const fields = view.fields;
  const from = choice("from", FROM, fields.from || "last", () => shape());
  const at = h("input", { name: "at", value: fields.at || "" });
  const atLabel = field("At", at);
  const partition = partitionField(topic.partitions, fields.partition);
  const key = h("input", { name: "key", value: fields.key || "", spellcheck: "false" });
  const text = h("input", { name: "text", value: fields.text || "", spellcheck: "false" });
  const live = h(
    "button.go",
    { type: "button", "aria-pressed": "false", onclick: follow },
    "Follow",
  );
  const more = h(
    "button.go",
    { type: "button", hidden: true, onclick: () => told(onward()) },
    "Go on",
  );
  let next = {};
  let end = true;
  let turn = 0; // of the last question: an answer that comes after it is not shown
  let looking = false;
  let follows = 0;
  let following = 0;

  function shape() {
    atLabel.hidden = !(from.value in { offset: 1, time: 1 });
    at.type = from.value === "time" ? "datetime-local" : "number";
    if (at.type === "datetime-local") at.step = 1;
  }
  function wish(extra) {
    return {
      topic: name,
      partition: partition.value,
      key: key.value,
      text: text.value,
      ...extra,
    };
  }
  function start() {
    const kind = from.value;
    const when = kind === "time" ? new Date(at.value).getTime() : at.value;
    if (kind === "time" && !(when >= 0)) throw new Error("At: give a date and a time");
    return wish({ from: kind, at: kind in { offset: 1, time: 1 } ? when : "" });
  }
  const going = () =>
    wish({
      from: "next",
      at: Object.entries(next)
        .map((p) => p.join(":"))
        .join(","),
    });

  function add(found, fresh) {
    ({ next, end } = found);
    const rows = found.records.map((one) => record(view, name, one, fresh));
    // The newest first, as long as the end is shown.
    list.prepend(...rows.reverse());
    while (list.children.length > SHOWN_MAX) list.lastChild.remove();
    pressed();
  }
  async function load() {
    const mine = (turn += 1);
    following = 0;
    next = {};
    end = true;
    pressed();
    list.replaceChildren();
    note.textContent = "Looking";
    looking = true;
    try {
      await look(() => mine === turn);
    } catch (problem) {
      if (mine === turn) throw problem;
    } finally {
      if (mine === turn) looking = false;
    }
  }
  async function look(latest) {
    const found = await view.get("records", start());
    if (!latest()) return;
    view.keep({
      from: from.value,
      at: at.value,
      partition: partition.value,
      key: key.value,
      text: text.value,
    });
    add(found, false);
    const missing = found.missing ? `; ${found.missing} partitions cannot be asked` : "";
    note.textContent =
      `${count(found.records.length)} shown, ${count(found.scanned)} read` +
      `${found.end ? "" : ", more follow"}${missing}`;
  }
  async function onward() {
    const mine = (turn += 1);
    try {
      const found = await view.get("records", going());
      if (mine !== turn) return;
      add(found, true);
      note.textContent = `${count(found.records.length)} more, ${count(found.scanned)} read`;
    } catch (problem) {
      if (mine === turn) throw problem;
    }
  }
  function pressed() {
    more.hidden = end || Boolean(following);
    live.setAttribute("aria-pressed", String(Boolean(following)));
    live.textContent = following ? "Stop following" : "Follow";
  }
  async function follow() {
    if (!looking) turn += 1; // it goes on from what is found
    const mine = following ? 0 : (follows += 1);
    following = mine;
    pressed();
    let seen = 0;
    while (following === mine && mine && !view.signal.aborted) {
      if (!document.hidden && !looking) {
        try {
          const found = await view.get("records", going());
          if (following !== mine) return;
          add(found, true);
          seen += found.records.length;
          note.textContent = `Following: ${count(seen)} new`;
          if (!found.end) continue;
        } catch (problem) {
          if (problem.name === "AbortError" || following !== mine) return;
          note.textContent = problem.message;
        }
      }
      await new Promise((done) => {
        setTimeout(done, FOLLOW_MS);
      });
    }
  }
  function told(work) {
    work.catch((problem) => {
      if (problem.name !== "AbortError") note.textContent = problem.message;
    });
  }
  function submit(event) {
    event.preventDefault();
    told(load());
  }

  shape();
  box.replaceChildren(
    h(
      "form.tools",
      { onsubmit: submit, "aria-label": "Look for messages" },
      field("From", from),
      atLabel,
      field("Partition", partition),
      field("Key", key),
      field("Key or value contains", text, ".grow"),
      h("button.go.main", "Show"),
      live,
    ),
    note,
    list,
    more,
    ...(session.write ? [production(name, topic.partitions)] : []),
  );
  try {
    await load();
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    note.textContent = problem.message;
  }
}

// A list of numbers, or of many partitions a number; empty: all.
function partitionField(count_, chosen) {
  if (count_ > LISTED_MAX) {
    const value = chosen ?? (count_ > ALL_MAX ? "0" : "");
    const max = count_ - 1;
    return h("input", {
      name: "partition",
      type: "number",
      min: 0,
      max,
      value,
      placeholder: "all",
    });
  }
  const numbers = [["", "all"]]; // in this order: an object would begin with its numbers
  for (let n = 0; n < count_; n += 1) numbers.push([String(n), String(n)]);
  return choice("partition", numbers, chosen ?? "");
}

export function shown(part) {
  if (part === null) return h("span.quiet", "null");
  return [
    part.text === undefined ? h("span.quiet", `base64 ${part.base64}`) : part.text,
    part.shortened && h("span.quiet", " … shortened"),
  ];
}

function record(view, name, one, fresh) {
  const body = h("div.body");
  const details = h(
    "details",
    {
      ontoggle: () => {
        if (!details.open || body.children.length) return;
        fill(view, name, one, body).catch((problem) => {
          if (problem.name === "AbortError") return;
          body.append(h("p.problem", { role: "alert" }, problem.message));
        });
      },
    },
    h(
      "summary",
      h("span.where.mono", `${one.partition}:${one.offset}`),
      h("span.quiet.where", { title: moment(one.time) }, time(one.time)),
      h("span.key.mono", one.key === null ? "" : shown(one.key)),
      h("span.text.mono", shown(one.value)),
    ),
    body,
  );
  return h(fresh ? "li.fresh" : "li", details);
}

async function fill(view, name, one, body) {
  const part = (field_) => (field_ === null ? "null" : size(field_.bytes));
  body.append(
    facts([
      ["Partition, offset", `${one.partition}, ${count(one.offset)}`],
      ["Time", `${moment(one.time)}${one.appended ? " (appended)" : ""}`],
      ["Key", h("span.mono", shown(one.key))],
      ...one.headers.map(([key, value]) => [`Header ${key}`, h("span.mono", shown(value))]),
      one.more_headers && ["Headers", `${one.more_headers} more`],
      ["Size", `key ${part(one.key)}, value ${part(one.value)}`],
    ]),
  );
  const where = { topic: name, partition: one.partition, offset: one.offset };
  let value = one.value;
  if (value !== null && value.shortened) value = (await view.get("record", where)).value;
  body.append(json(value), ...[rest("key", one.key, where), rest("value", value, where)].flat());
}

// Where all bytes are, if these are not all of them, or no text.
function rest(name, part, where) {
  if (part === null || (!part.shortened && part.text !== undefined)) return [];
  const query = new URLSearchParams({ ...where, part: name });
  const link = h("a", { href: `/api/raw?${query}`, download: "" }, `Download the ${name}`);
  const words = part.shortened ? `Shortened: the ${name} has ${size(part.bytes)}. ` : null;
  return [h("p.quiet.small", words, link)];
}
