// Changes, shown only where the console may make them.

import { post } from "./api.js";
import { choice, field, h } from "./dom.js";

const say = (text) => window.dispatchEvent(new CustomEvent("say", { detail: text }));

// A form that folds; `send` returns what is said when it is done.
function form(title, button, parts, send, danger = false) {
  const problem = h("p.problem", { role: "alert", hidden: true });
  const go = h(danger ? "button.go.danger" : "button.go.main", button);
  return h(
    "details.write",
    h("summary", title),
    h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          go.disabled = true;
          problem.hidden = true;
          try {
            say(await send());
          } catch (failure) {
            problem.textContent = failure.message;
            problem.hidden = false;
          } finally {
            go.disabled = false;
          }
        },
      },
      problem,
      parts,
      h("div", go),
    ),
  );
}

export function production(topic, partitions) {
  const key = h("input", { name: "produce-key", spellcheck: "false" });
  const value = h("textarea", { name: "produce-value", spellcheck: "false" });
  const none = h("input", { type: "checkbox", name: "produce-null" });
  const partition = h("input", {
    name: "produce-partition",
    type: "number",
    min: 0,
    max: partitions - 1,
    placeholder: "by key",
  });
  const parts = [
    h("div.tools", field("Key", key), field("Partition", partition)),
    field("Value", value),
    h("label.check", none, "null instead of a value"),
  ];
  return form("Produce a message", "Produce", parts, async () => {
    const done = await post("produce", {
      topic,
      key: key.value,
      value: none.checked ? null : value.value,
      partition: partition.value === "" ? null : Number(partition.value),
    });
    return `Written to partition ${done.partition} at offset ${done.offset}`;
  });
}

export function creation(made) {
  const name = h("input", { name: "new-name", required: true, spellcheck: "false" });
  const partitions = h("input", { name: "new-partitions", type: "number", value: "-1", min: -1 });
  const replication = h("input", {
    name: "new-replication",
    type: "number",
    value: "-1",
    min: -1,
  });
  const parts = [
    field("Name", name),
    h(
      "div.tools",
      field("Partitions (-1: the default)", partitions),
      field("Replicas (-1: the default)", replication),
    ),
  ];
  return form("Create a topic", "Create", parts, async () => {
    const done = await post("create-topic", {
      name: name.value,
      partitions: Number(partitions.value),
      replication: Number(replication.value),
    });
    made(done.name);
    return `${done.name} was created`;
  });
}

export function deletion(name) {
  const again = h("input", {
    name: "delete-name",
    required: true,
    spellcheck: "false",
    autocomplete: "off",
  });
  return form(
    "Delete this topic",
    "Delete it with all its messages",
    [field("Type the topic’s name", again)],
    async () => {
      await post("delete-topic", { name, again: again.value });
      location.hash = "#/topics";
      return `${name} was deleted`;
    },
    true,
  );
}

export function reset(group) {
  const topic = h("input", { name: "reset-topic", required: true, spellcheck: "false" });
  const at = h("input", { name: "reset-at", type: "number", min: 0, value: "0" });
  const to = choice(
    "reset-to",
    {
      first: "the beginning",
      last: "the end",
      offset: "an offset",
      time: "a time, in ms since 1970",
    },
    "first",
  );
  const parts = [
    h("div.tools", field("Topic", topic), field("To", to), field("Offset or time", at)),
  ];
  return form(
    "Move this group",
    "Move",
    parts,
    async () => {
      const done = await post("reset-offsets", {
        group,
        topic: topic.value,
        to: to.value,
        at: Number(at.value),
      });
      return `Moved in ${done.partitions} partitions`;
    },
    true,
  );
}
