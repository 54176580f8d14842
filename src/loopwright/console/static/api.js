// Requests to the server. The token comes from the address's fragment, stays in this module, and goes out as a header.

let token = "";
let askForToken = () => Promise.resolve("");

export class ApiError extends Error {
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

export function takeToken() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (!found) return;
  token = decodeURIComponent(found[1]);
  const rest = location.hash.replace(/[#&]token=[^&]+/, "");
  history.replaceState(null, "", location.pathname + location.search + (rest || "#/"));
}

export function onTokenNeeded(ask) {
  askForToken = ask;
}

function buildHeaders(extra) {
  const headers = { "X-Loopwright-Console": "1", ...extra };
  if (token) headers.Authorization = `Bearer ${token}`;
  return headers;
}

function buildAddress(name, parameters) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters || {})) {
    for (const one of [value].flat()) if (one !== "" && one !== null && one !== undefined) query.append(key, one);
  }
  return `api/${name}?${query}`;
}

async function send(address, options, isAgain) {
  let response;
  try {
    response = await fetch(address, { ...options, headers: buildHeaders(options.extra), credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The console's server does not answer.", 0);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const isToken = response.status === 401 || (response.status === 403 && !token);
  if (isToken && !isAgain) {
    token = await askForToken(answer.error || "");
    return send(address, options, true);
  }
  throw new ApiError(answer.error || `The server answers ${response.status}.`, response.status);
}

export async function get(name, parameters) {
  return (await send(buildAddress(name, parameters), {}, false)).json();
}

export async function post(name, body) {
  const options = { method: "POST", body: JSON.stringify(body), extra: { "Content-Type": "application/json" } };
  return (await send(`api/${name}`, options, false)).json();
}

function parseEvent(text) {
  const event = { id: null, kind: "message", data: "" };
  for (const line of text.split("\n")) {
    if (line.startsWith("id: ")) event.id = Number(line.slice(4));
    else if (line.startsWith("event: ")) event.kind = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event.data ? { ...event, value: JSON.parse(event.data) } : null;
}

async function readStream(response, receive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = parseEvent(part);
      if (event) receive(event);
    }
  }
}

// Follow a stream of events until the returned function is called; it continues after the last number it was given.
export function follow(name, parameters, receive, report) {
  const stopping = new AbortController();
  let last = parameters.after ?? null;
  let pause = 250;
  const take = (event) => {
    pause = 250;
    if (event.id !== null) {
      if (last !== null && event.id <= last) return;
      last = event.id;
    }
    if (event.kind === "gone" || event.kind === "broken") stopping.abort();
    receive(event);
  };
  const run = async () => {
    while (!stopping.signal.aborted) {
      try {
        const extra = { Accept: "text/event-stream" };
        if (last !== null) extra["Last-Event-ID"] = String(last);
        const response = await send(buildAddress(name, parameters), { signal: stopping.signal, extra }, false);
        report(true);
        await readStream(response, take);
      } catch (error) {
        if (error.status === 404) receive({ id: null, kind: "gone", value: {} });
        if (error.status >= 400 && error.status !== 401 && error.status < 500) return;
      }
      if (stopping.signal.aborted) return;
      report(false);
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, 5000);
    }
  };
  run();
  return () => stopping.abort();
}
