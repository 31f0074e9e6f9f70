// The page's frame: navigation, logging in, and which view is shown.

import { begin, get, post, session } from "./api.js";
import { field, h } from "./dom.js";
import { cluster } from "./cluster.js";
import { group, groups } from "./groups.js";
import { broker } from "./settings.js";
import { topic } from "./topic.js";
import { topics } from "./topics.js";
import { transactions } from "./transactions.js";

const PLACES = {
  "": "Cluster",
  topics: "Topics",
  groups: "Groups",
  transactions: "Transactions",
};
const VIEWS = { "": cluster, broker, topics, topic, groups, group, transactions };
const UNDER = { topic: "topics", group: "groups", broker: "" };

const main = document.getElementById("main");
const status = document.getElementById("status");
let leaving = null;

// A part of the address; one that was cut, or written by hand, stays as it is.
function word(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// A view's means: its words and fields in the address, a signal of its end, and the place for it.
class View {
  constructor() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    this.words = path.split("/").map(word);
    this.fields = Object.fromEntries(new URLSearchParams(query || ""));
    this.ends = new AbortController();
    this.signal = this.ends.signal;
  }

  get(name, fields) {
    return get(name, fields, this.signal);
  }

  show(...parts) {
    if (!this.signal.aborted) main.replaceChildren(...parts.flat(Infinity).filter(Boolean));
  }

  // Change the address's fields without a new view.
  keep(fields) {
    Object.assign(this.fields, fields);
    const query = new URLSearchParams(Object.entries(this.fields).filter((one) => one[1] !== ""));
    const text = query.toString();
    const path = this.words.map(encodeURIComponent).join("/");
    history.replaceState(null, "", `#/${path}${text ? `?${text}` : ""}`);
  }

  // Do it now, and again and again while the page is visible.
  async every(ms, what) {
    await what();
    this.again(ms, what);
  }

  async again(ms, what) {
    while (!this.signal.aborted) {
      await new Promise((done) => {
        const timer = setTimeout(done, ms);
        this.signal.addEventListener(
          "abort",
          () => {
            clearTimeout(timer);
            done();
          },
          { once: true },
        );
      });
      if (this.signal.aborted) return;
      if (document.hidden) continue;
      try {
        await what();
      } catch (problem) {
        if (problem.name === "AbortError" || !session.here) return;
        say(problem.message);
      }
    }
  }
}

let quiet = 0;
export function say(text) {
  status.replaceChildren(h("p", text));
  clearTimeout(quiet);
  quiet = setTimeout(() => status.replaceChildren(), 6000);
}
window.addEventListener("say", (event) => say(event.detail));

async function open() {
  if (leaving) leaving.abort();
  const view = new View();
  leaving = view.ends;
  const name = Object.hasOwn(VIEWS, view.words[0]) ? view.words[0] : "";
  frame(UNDER[name] ?? name);
  if (!session.here) {
    login(view);
    return;
  }
  const title = name === "broker" ? `Broker ${view.words[1]}` : view.words[1] || PLACES[name];
  document.title = `${title} – kafkalog`;
  main.setAttribute("aria-busy", "true");
  try {
    await VIEWS[name](view);
  } catch (problem) {
    if (problem.name === "AbortError" || !session.here) return;
    view.show(
      h("h1", { tabindex: -1 }, title),
      h("p.problem", { role: "alert" }, problem.message),
    );
  } finally {
    if (!view.signal.aborted) main.removeAttribute("aria-busy");
  }
}

function frame(place) {
  document
    .getElementById("nav")
    .replaceChildren(
      ...(session.here ? Object.entries(PLACES) : []).map(([name, text]) =>
        h("a", { href: `#/${name}`, "aria-current": name === place && "page" }, text),
      ),
    );
  const out = session.user && h("button.plain", { type: "button", onclick: logout }, "Log out");
  document
    .getElementById("who")
    .replaceChildren(
      ...[session.here && h("span", session.user || "anonymous"), out].filter(Boolean),
    );
}

async function logout() {
  await post("logout", {}).catch(() => null);
  await begin();
  open();
}

function login(view) {
  document.title = "Log in – kafkalog";
  const problem = h("p.problem", { role: "alert", hidden: true });
  const user = h("input", {
    name: "user",
    autocomplete: "username",
    required: true,
    autocapitalize: "none",
    spellcheck: "false",
  });
  const password = h("input", {
    name: "password",
    type: "password",
    required: true,
    autocomplete: "current-password",
  });
  const button = h("button.go.main", "Log in");
  const insecure =
    !session.encrypted && !["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const form = h(
    "form.login",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        problem.hidden = true;
        try {
          await post("login", { user: user.value, password: password.value });
          await begin();
          open();
        } catch (failure) {
          problem.textContent = failure.message;
          problem.hidden = false;
          password.value = "";
          password.focus();
        } finally {
          button.disabled = false;
        }
      },
    },
    h("h1", "Log in"),
    h(
      "p.quiet.small",
      `With your user of the Kafka cluster at ${session.brokers}. You see what its ` +
        "permissions let you see.",
    ),
    insecure &&
      h("p.problem", "This page is not encrypted: others on the network can read the password."),
    problem,
    field("User", user),
    field("Password", password),
    button,
  );
  view.show(form);
  user.focus();
}

window.addEventListener("hashchange", async () => {
  await open();
  const head = main.querySelector("h1");
  if (head && document.activeElement === document.body) {
    head.setAttribute("tabindex", "-1");
    head.focus();
  }
});
window.addEventListener("logged-out", async () => {
  await begin().catch(() => null);
  open();
});

try {
  await begin();
  await open();
} catch (problem) {
  main.replaceChildren(h("p.problem", { role: "alert" }, problem.message));
}
