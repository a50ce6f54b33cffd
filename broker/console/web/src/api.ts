// What the page asks of the broker. Tokens are in the memory of this module alone: never in
// the document, in storage, in a cookie or in an address.

export interface FieldError { field: string; detail: string }

export interface Diagnostic {
  severity: "error" | "warning"; file: string; line?: number; within?: string; setting?: string; summary: string; detail?: string;
}

/** Problem is a refusal of the broker, or that it was not reached (code ""). */
export class Problem extends Error {
  constructor(
    readonly code: string, readonly title: string, detail: string, readonly requestID = "",
    readonly errors: FieldError[] = [], readonly diagnostics: Diagnostic[] = [], readonly status = 0,
  ) {
    super(detail || title);
  }
}

export interface Answer<T> { data: T; etag: string }

export interface Asked { body?: unknown; raw?: BodyInit; ifMatch?: string; signal?: AbortSignal; accept?: string }

const requestTimeout = 90_000;

/** Caller is somebody with a token. */
export class Caller {
  #token: string;
  /** onRefused is called when the token is known no more. */
  onRefused = () => {};

  constructor(token: string) { this.#token = token; }

  /** protocols are what a WebSocket of this caller offers: headers it cannot have. */
  protocols(name: string): string[] { return [name, "bearer." + this.#token]; }

  async send(method: string, path: string, asked: Asked = {}): Promise<Response> {
    const headers: Record<string, string> = { Authorization: "Bearer " + this.#token, Accept: asked.accept ?? "application/json" };
    if (asked.body !== undefined) headers["Content-Type"] = "application/json";
    if (asked.ifMatch) headers["If-Match"] = asked.ifMatch;
    let response: Response;
    try {
      response = await fetch(path, {
        method, headers, body: asked.raw ?? (asked.body === undefined ? undefined : JSON.stringify(asked.body)),
        cache: "no-store", credentials: "omit", redirect: "error", signal: asked.signal ?? AbortSignal.timeout(requestTimeout),
      });
    } catch (e) {
      if (e instanceof DOMException && e.name === "AbortError") throw e;
      throw new Problem("", "No answer", "The broker does not answer.");
    }
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status === 401) this.onRefused();
    throw problem;
  }

  async ask<T>(method: string, path: string, asked: Asked = {}): Promise<Answer<T>> {
    const response = await this.send(method, path, asked);
    const text = await response.text();
    return { data: (text ? JSON.parse(text) : undefined) as T, etag: response.headers.get("ETag") ?? "" };
  }

  async get<T>(path: string): Promise<T> { return (await this.ask<T>("GET", path)).data; }
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const p = await response.json();
    return new Problem(p.code ?? "", p.title ?? response.statusText, p.detail ?? "", p.request_id ?? "", p.errors ?? [], p.diagnostics ?? [], response.status);
  } catch {
    return new Problem("", response.statusText, `The answer was ${response.status}.`, "", [], [], response.status);
  }
}

export interface Event { name: string; data: unknown }

/** events reads server-sent events until they end. */
export async function* events(response: Response): AsyncGenerator<Event> {
  const reader = response.body!.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    kept += value.replaceAll("\r\n", "\n");
    for (let end = kept.indexOf("\n\n"); end >= 0; end = kept.indexOf("\n\n")) {
      const block = kept.slice(0, end);
      kept = kept.slice(end + 2);
      let name = "message", data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("data:")) data += line.slice(5).trimStart();
      }
      if (data) yield { name, data: JSON.parse(data) };
    }
  }
}

export const admin = (...parts: string[]) => "/api/admin/sandbox/" + parts.map(encodeURIComponent).join("/");

export function withQuery(path: string, query: Record<string, string | number | undefined>): string {
  const given = Object.entries(query).filter(([, v]) => v !== undefined && v !== "").map(([k, v]) => [k, String(v)]);
  return given.length ? path + "?" + new URLSearchParams(given) : path;
}
