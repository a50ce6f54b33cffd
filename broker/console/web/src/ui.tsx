// Small parts that the views are made of.
import type { ComponentChildren, VNode } from "preact";
import { useCallback, useEffect, useId, useRef, useState } from "preact/hooks";
import { Problem } from "./api";
import type { Diagnostic } from "./api";
import type { UsageLine } from "./types";

type Children = { children?: ComponentChildren };

/** usePolled asks now and every so often, while the page is looked at. */
export function usePolled<T>(ask: () => Promise<T>, everyMS: number, of: unknown[] = []) {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    let over = false, timer = 0;
    const look = async () => {
      if (!document.hidden) {
        try {
          const got = await ask();
          if (over) return;
          setValue(() => got);
          setError(undefined);
        } catch (e) {
          if (over) return;
          setError(e);
        }
      }
      if (everyMS > 0) timer = window.setTimeout(look, everyMS);
    };
    const shown = () => { if (!document.hidden) { clearTimeout(timer); void look(); } };
    document.addEventListener("visibilitychange", shown);
    void look();
    return () => { over = true; clearTimeout(timer); document.removeEventListener("visibilitychange", shown); };
  }, [round, everyMS, ...of]);
  return { value, error, refresh: useCallback(() => setRound((n) => n + 1), []) };
}

/** useTask runs one thing at a time for a button, and keeps what went wrong. */
export function useTask() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const run = useCallback(async (task: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await task();
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  }, []);
  return { busy, error, run, setError };
}

// Silent says which brokers have not answered for a list.
export function Silent({ brokers }: { brokers?: string[] }) {
  if (!brokers?.length) return null;
  return <div class="failure" role="alert">What these brokers have is missing, since they do not answer: {brokers.map((b) => <><code>{b}</code> </>)}</div>;
}

export function Failure({ error }: { error: unknown }) {
  if (!error) return null;
  const problem = error instanceof Problem ? error : undefined;
  return (
    <div class="failure" role="alert">
      {problem?.code && <strong>{problem.code} {problem.title}. </strong>}
      {error instanceof Error ? error.message : String(error)}
      {problem && problem.errors.length > 1 && <ul>{problem.errors.map((e) => <li><code>{e.field}</code> {e.detail}</li>)}</ul>}
      <Diagnostics of={problem?.diagnostics} />
      {problem?.requestID && <small> Request <code>{problem.requestID}</code></small>}
    </div>
  );
}

export function Diagnostics({ of }: { of?: Diagnostic[] }) {
  if (!of?.length) return null;
  return (
    <ul class="diagnostics">
      {of.map((d) => (
        <li class={d.severity}>
          <strong>{d.severity}</strong> <code>{d.file}{d.line ? `:${d.line}` : ""}</code> {d.within && <code>{d.within}</code>} {d.summary}
          {d.detail && <div>{d.detail}</div>}
        </li>
      ))}
    </ul>
  );
}

export function Card({ title, actions, children, id }: Children & { title?: ComponentChildren; actions?: ComponentChildren; id?: string }) {
  return (
    <section class="card" id={id}>
      {(title || actions) && <header>{title && <h2>{title}</h2>}{actions && <div class="actions">{actions}</div>}</header>}
      {children}
    </section>
  );
}

export function Badge({ kind, children }: Children & { kind: "good" | "bad" | "warn" | "plain" }) {
  return <span class={"badge " + kind}>{children}</span>;
}

/** Bar shows how much of something is used. */
export function Bar({ label, used, limit, unit = "", alarm = true }: { label: string; used: number; limit?: number; unit?: string; alarm?: boolean }) {
  const part = limit ? Math.min(1, used / limit) : 0;
  const text = limit === undefined ? `${figure(used)}${unit}` : `${figure(used)} of ${figure(limit)}${unit}`;
  return (
    <div class="bar-line">
      <span>{label}</span>
      {limit === undefined
        ? <span class="track none" aria-hidden="true" />
        : <meter class={alarm && part >= 0.9 ? "full" : ""} min={0} max={1} value={part} aria-label={`${label}: ${text}`}>{text}</meter>}
      <span class="number">{text}</span>
    </div>
  );
}

const limitNames: Record<string, [string, string]> = {
  max_instances: ["Instances", ""], max_concurrent: ["Executions at a time", ""], requests_per_second: ["Requests", " /s"],
  executions_per_day: ["Executions today", ""], execution_seconds_per_day: ["Execution time today", " s"],
  max_memory_mb: ["Memory of an instance", " MiB"], max_cpus: ["Processors of an instance", ""],
  money_per_day: ["Money today", ""], money_per_month: ["Money this month", ""],
};

export const limitOrder = Object.keys(limitNames);
export const limitName = (name: string) => limitNames[name]?.[0] ?? name;

export function UsageBars({ lines }: { lines: UsageLine[] }) {
  const shown = lines.filter((l) => l.used !== undefined && (l.limit !== undefined || l.used > 0));
  if (!shown.length) return <p class="dim">Nothing is used, and nothing is limited.</p>;
  return <div class="bars">{shown.map((l) => <Bar key={l.name} label={limitName(l.name)} used={l.used!} limit={l.limit} unit={limitNames[l.name]?.[1]} />)}</div>;
}

export function figure(n: number): string {
  if (n === 0 || Number.isInteger(n)) return n.toLocaleString("en");
  return n.toLocaleString("en", { maximumSignificantDigits: 3 });
}

export function Time({ at }: { at?: string }) {
  if (!at) return <span class="dim">never</span>;
  const t = new Date(at);
  return <time dateTime={at} title={t.toISOString()}>{t.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" })}</time>;
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  const parts: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([n]) => s >= n);
  if (first < 0) return "0 s";
  const [n, unit] = parts[first]!, next = parts[first + 1];
  const rest = next ? Math.floor((s % n) / next[0]) : 0;
  return `${Math.floor(s / n)} ${unit}` + (rest ? ` ${rest} ${next![1]}` : "");
}

/** Dialog is open as long as it is there. */
export function Dialog({ title, children, close, wide }: Children & { title: string; close: () => void; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null), id = useId();
  useEffect(() => { if (!ref.current?.open) ref.current?.showModal(); }, []);
  return (
    <dialog ref={ref} class={wide ? "wide" : ""} aria-labelledby={id} onClose={close}>
      <header><h2 id={id}>{title}</h2><button type="button" class="plain" aria-label="Close" onClick={() => ref.current?.close()}>✕</button></header>
      {children}
    </dialog>
  );
}

/** Confirm asks before something that cannot be taken back. A word is to be typed if there is one. */
export function Confirm({ title, word, button, act, close, children }: Children & { title: string; word?: string; button: string; act: () => Promise<void>; close: () => void }) {
  const task = useTask();
  const [typed, setTyped] = useState("");
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={(e) => { e.preventDefault(); void task.run(async () => { await act(); close(); }); }}>
        {children}
        {word && <TextField label={<>Type <code>{word}</code> to go on</>} value={typed} set={setTyped} />}
        <Failure error={task.error} />
        <footer>
          <button type="button" onClick={close}>Cancel</button>
          <button class="danger" disabled={task.busy || (word !== undefined && typed !== word)}>{button}</button>
        </footer>
      </form>
    </Dialog>
  );
}

export function TextField({ label, value, set, type = "text", hint, error, ...more }: {
  label: ComponentChildren; value: string; set: (value: string) => void; type?: string; hint?: ComponentChildren; error?: string;
  required?: boolean; placeholder?: string; autofocus?: boolean; pattern?: string; min?: number; max?: number; step?: string; disabled?: boolean; list?: string;
}) {
  const id = useId();
  return (
    <Labelled id={id} label={label} hint={hint} error={error}>
      <input id={id} type={type as "text"} value={value} autocomplete="off" spellcheck={false} aria-invalid={error ? "true" : undefined}
        aria-describedby={describedBy(id, hint, error)} onInput={(e) => set(e.currentTarget.value)} {...more} />
    </Labelled>
  );
}

export function Choice({ label, value, set, options, hint, error, disabled }: {
  label: ComponentChildren; value: string; set: (value: string) => void; options: (string | [string, string])[]; hint?: ComponentChildren; error?: string; disabled?: boolean;
}) {
  const id = useId();
  return (
    <Labelled id={id} label={label} hint={hint} error={error}>
      <select id={id} value={value} disabled={disabled} aria-describedby={describedBy(id, hint, error)} onChange={(e) => set(e.currentTarget.value)}>
        {options.map((o) => typeof o === "string" ? <option value={o}>{o}</option> : <option value={o[0]}>{o[1]}</option>)}
      </select>
    </Labelled>
  );
}

export const describedBy = (id: string, hint?: ComponentChildren, error?: string) =>
  [hint ? id + "-hint" : "", error ? id + "-error" : ""].filter(Boolean).join(" ") || undefined;

export function Labelled({ id, label, hint, error, children, required }: Children & { id: string; label: ComponentChildren; hint?: ComponentChildren; error?: string; required?: boolean }) {
  return (
    <div class="field">
      <label for={id}>{label}{required && <span class="dim"> (required)</span>}</label>
      {children}
      {hint && <div class="hint" id={id + "-hint"}>{hint}</div>}
      {error && <div class="field-error" id={id + "-error"} role="alert">{error}</div>}
    </div>
  );
}

export function Check({ label, value, set, hint, disabled }: { label: ComponentChildren; value: boolean; set: (value: boolean) => void; hint?: ComponentChildren; disabled?: boolean }) {
  const id = useId();
  return (
    <div class="field check">
      <input id={id} type="checkbox" checked={value} disabled={disabled} aria-describedby={describedBy(id, hint)} onChange={(e) => set(e.currentTarget.checked)} />
      <label for={id}>{label}</label>
      {hint && <div class="hint" id={id + "-hint"}>{hint}</div>}
    </div>
  );
}

/** Table scrolls by itself where it is wider than the screen. */
export function Table({ label, head, children, empty, rows }: Children & { label: string; head: ComponentChildren[]; empty?: string; rows: number }) {
  if (!rows) return <p class="dim">{empty ?? "There is nothing."}</p>;
  return (
    <div class="table" role="region" aria-label={label} tabIndex={0}>
      <table><thead><tr>{head.map((h) => <th scope="col">{h}</th>)}</tr></thead><tbody>{children}</tbody></table>
    </div>
  );
}

/** Once shows a secret that cannot be seen again, until it is closed. */
export function Once({ title, secret, close, children }: Children & { title: string; secret: string; close: () => void }) {
  const [copied, setCopied] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(secret);
      setCopied("Copied.");
    } catch {
      setCopied("The browser does not let this page copy. Select the text.");
    }
  };
  const [shown, show] = useState(false);
  return (
    <Dialog title={title} close={close}>
      {children}
      <p><code class="once">{shown ? secret : "•".repeat(24)}</code></p>
      <p role="status">{copied}</p>
      <footer><button type="button" onClick={() => show(!shown)}>{shown ? "Hide" : "Show"}</button><button type="button" onClick={copy}>Copy</button><button type="button" class="primary" onClick={close}>I have kept it</button></footer>
    </Dialog>
  );
}

/** Difference shows a unified diff. */
export function Difference({ text }: { text: string }) {
  if (!text.trim()) return <p class="dim">The files stay as they are.</p>;
  const kind = (line: string) => line.startsWith("@@") || line.startsWith("---") || line.startsWith("+++") ? "place" : line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
  return <pre class="difference" tabIndex={0} aria-label="Difference">{text.split("\n").map((line): VNode => <span class={kind(line)}>{line + "\n"}</span>)}</pre>;
}
