// Requests to the server. All data of the page comes through this module.

export class ServerError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export async function ask(method, path, body) {
  const options = { method, headers: {}, credentials: "same-origin" };
  if (method !== "GET") options.headers["X-Penstock"] = "1";
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new ServerError(0, "the server of this page does not answer; is `penstock ui` still running?");
  }
  const text = await response.text();
  const answer = text ? JSON.parse(text) : null;
  if (!response.ok) throw new ServerError(response.status, (answer?.errors ?? [response.statusText]).join("; "));
  return answer;
}

export const look = (path) => ask("GET", path);
export const jobPath = (job) => `v1/jobs/${encodeURIComponent(job)}`;

// A session begins with the token after `#`, which is taken out of the address at once.
export async function beginSession() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (token === null) return;
  const job = given.get("job");
  history.replaceState(null, "", location.pathname + (job ? `#/jobs/${encodeURIComponent(job)}` : "#/"));
  await ask("POST", "v1/session", { token });
}

// Server-sent events; the browser connects again by itself. Returns a function that ends them.
export function follow(path, handlers, onConnection) {
  const source = new EventSource(path);
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
  }
  source.addEventListener("end", () => source.close());
  source.onopen = () => onConnection?.(true);
  source.onerror = () => onConnection?.(false);
  return () => source.close();
}

// Begins a request to a job, and waits for its end.
export async function carryOut(job, { method, path, body }) {
  const begun = await ask(method, jobPath(job) + path, body);
  for (;;) {
    const seen = await look(`${jobPath(job)}/triggers/${begun["request-id"]}`);
    if (seen.status.id === "COMPLETED") {
      const failure = seen.operation["failure-cause"];
      if (failure) throw new ServerError(200, failure.message);
      return seen.operation.result;
    }
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}
