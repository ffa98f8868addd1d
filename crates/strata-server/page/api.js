// The server's API: requests with the key, errors as values with words, and the stream of an answer.

const KEY = "strata.key";

export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

// An answer that is not one. `status` 0: the server was not reached.
export class ApiError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function request(path, options = {}) {
  const headers = { ...options.headers };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  const body = await response.text();
  let message = body.slice(0, 400) || response.statusText;
  try {
    const { error } = JSON.parse(body);
    message = error.param ? `${error.param}: ${error.message}` : error.message;
  } catch {
    // not in the API's shape: the text as it is
  }
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  throw new ApiError(response.status, message, Number.isFinite(seconds) ? seconds : null);
}

export const models = async () => (await (await request("v1/models")).json()).data ?? [];

export const status = async (signal) => (await request("v1/status", { signal })).json();

// The data of server-sent events, one string each. `read` gives text in pieces cut anywhere.
export async function* events(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    // a CR at the end may be half of a line end
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) yield data.join("\n");
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    if (done) return;
  }
}

// The answer to a chat request in pieces, as the API sends them. A stream that ends before its end is an error.
export async function* chat(body, signal) {
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, return_progress: true }),
    signal,
  });
  try {
    for await (const data of events(response.body.getReader())) {
      if (data === "[DONE]") return;
      const piece = JSON.parse(data);
      if (piece.error) throw new ApiError(Number(piece.error.code) || 500, piece.error.message);
      yield piece;
    }
  } catch (error) {
    if (error instanceof TypeError || error instanceof SyntaxError) throw new ApiError(0, "The connection to the server broke.");
    throw error;
  }
  throw new ApiError(0, "The server ended the answer early.");
}
