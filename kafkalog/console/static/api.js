// Requests to the console's server.

export class Failed extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export const session = { user: "", csrf: "", write: false, login: false, here: false };

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Failed(0, "the console does not answer");
  }
  const found = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  if (answer.ok) return found;
  if (answer.status === 401 && session.here) {
    session.here = false;
    window.dispatchEvent(new Event("logged-out"));
  }
  throw new Failed(answer.status, found.error);
}

export function get(name, fields = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(fields)) {
    if (value !== "" && value !== null && value !== undefined && value !== false) {
      query.set(key, value === true ? "1" : value);
    }
  }
  const text = query.toString();
  return ask(`/api/${name}${text ? `?${text}` : ""}`, { signal });
}

export function post(name, fields) {
  return ask(`/api/${name}`, {
    method: "POST",
    body: JSON.stringify(fields),
    headers: { "Content-Type": "application/json", "X-CSRF-Token": session.csrf },
  });
}

export async function begin() {
  Object.assign(session, await get("session"));
}
