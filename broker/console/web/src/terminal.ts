// A terminal in an instance. It is fetched when the first one is opened.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import type { Caller } from "./api";

const protocol = "sandbox-broker.terminal.v1";

// The terminal writes rules into style elements that it makes while it opens, which the page's
// policy refuses. It gets elements here whose text becomes a sheet that is adopted, which is
// no inline style.
function openWithoutInlineStyles(term: Terminal, into: HTMLElement): void {
  const createElement = document.createElement;
  document.createElement = function (this: Document, tag: string, options?: ElementCreationOptions) {
    if (tag !== "style") return createElement.call(document, tag, options);
    const element = createElement.call(document, "span") as HTMLElement;
    const sheet = new CSSStyleSheet();
    element.hidden = true;
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(element, "textContent", { get: () => "", set: (text: string) => sheet.replaceSync(text) });
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
      Element.prototype.remove.call(element);
    };
    return element;
  } as typeof document.createElement;
  try {
    term.open(into);
  } finally {
    document.createElement = createElement;
  }
}

interface Message { done?: { state: string; exit_code?: number }; error?: { code: string; detail: string }; lost?: number }

/** attach starts a shell and shows it until its end, or until the returned function ends it. */
export async function attach(who: Caller, instance: string, into: HTMLElement, over: (why: string) => void): Promise<() => void> {
  const term = new Terminal({ cursorBlink: true, fontSize: 13, screenReaderMode: true });
  const fit = new FitAddon();
  term.loadAddon(fit);
  openWithoutInlineStyles(term, into);
  fit.fit();
  const below = "/api/v1/instances/" + encodeURIComponent(instance) + "/commands";
  const { data: command } = await who.ask<{ id: string }>("POST", below, { body: { argv: ["bash", "-l"], terminal: { rows: term.rows, columns: term.cols }, background: true } });
  const address = new URL(`${below}/${encodeURIComponent(command.id)}/terminal`, location.href);
  address.protocol = address.protocol.replace("http", "ws");
  const socket = new WebSocket(address, who.protocols(protocol));
  socket.binaryType = "arraybuffer";
  let why = "The connection has ended.", ended = false;
  socket.onmessage = (e) => {
    if (typeof e.data !== "string") return term.write(new Uint8Array(e.data as ArrayBuffer));
    const m = JSON.parse(e.data) as Message;
    if (m.done) why = `The shell has ended with exit code ${m.done.exit_code ?? "unknown"}.`;
    if (m.error) why = `${m.error.code}: ${m.error.detail}`;
  };
  const resize = () => {
    fit.fit();
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ resize: { rows: term.rows, columns: term.cols } }));
  };
  const sized = new ResizeObserver(resize);
  sized.observe(into);
  socket.onopen = () => { resize(); term.focus(); };
  const encoder = new TextEncoder();
  term.onData((text) => { if (socket.readyState === WebSocket.OPEN) socket.send(encoder.encode(text)); });
  term.onBinary((text) => { if (socket.readyState === WebSocket.OPEN) socket.send(Uint8Array.from(text, (c) => c.charCodeAt(0))); });
  const end = () => {
    if (ended) return;
    ended = true;
    sized.disconnect();
    socket.close();
    term.dispose();
    who.ask("POST", `${below}/${encodeURIComponent(command.id)}/signal`, { body: { signal: "SIGHUP" } }).catch(() => {}); // it may have ended
  };
  socket.onclose = () => { if (!ended) { end(); over(why); } };
  return end;
}
