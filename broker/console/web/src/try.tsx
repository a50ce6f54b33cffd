// Runs code as a tenant does: with a token of a tenant, which stays in this page's memory.
import { useEffect, useRef, useState } from "preact/hooks";
import { Caller, admin, events, withQuery } from "./api";
import type { Caller as CallerType } from "./api";
import type { Tenant } from "./types";
import { Badge, Card, Choice, Failure, Table, TextField, figure, usePolled, useTask } from "./ui";

const samples: Record<string, string> = {
  python: 'import platform\n\nfor n in range(3):\n    print(n, platform.platform())\n',
  javascript: 'console.log("Hello from", process.version)\n',
  bash: 'uname -a\n',
};

interface Provider { id: string; languages: string[]; capabilities: string[]; state: string }
interface Execution { instance_id: string; provider: string; status: string; exit_code: number; execution_time: number; memory_used_mb?: number; error?: { code: string; detail: string }; result?: unknown; artifacts?: { kind: string; name?: string; mime_type?: string; base64?: string; text?: string }[] }
interface FileEntry { path: string; type: string; size: number }

export function Try({ caller }: { caller: CallerType }) {
  const [who, setWho] = useState<{ caller: CallerType; name: string }>();
  if (!who) return <Who caller={caller} set={setWho} />;
  return <Panel who={who.caller} name={who.name} leave={() => setWho(undefined)} />;
}

/** Who takes a tenant's token, or makes one. */
function Who({ caller, set }: { caller: CallerType; set: (who: { caller: CallerType; name: string }) => void }) {
  const tenants = usePolled(() => caller.get<{ data: Tenant[] }>(admin("tenants")), 0);
  const [token, setToken] = useState("");
  const [tenant, setTenant] = useState("");
  const task = useTask();
  const names = tenants.value?.data.map((t) => t.name) ?? [];
  const chosen = tenant || names[0] || "";
  const enter = async (token: string) => {
    const as = new Caller(token);
    const usage = await as.get<{ tenant: string }>("/api/v1/usage");
    setToken("");
    set({ caller: as, name: usage.tenant });
  };
  const make = () => task.run(async () => {
    const { data } = await caller.ask<{ token: string }>("POST", admin("tenants", chosen, "tokens"));
    await enter(data.token);
  });
  return (
    <div class="columns">
      <Card title="With a token that you have">
        <form onSubmit={(e) => { e.preventDefault(); void task.run(() => enter(token.trim())); }}>
          <TextField label="Token of a tenant" type="password" value={token} set={setToken} required />
          <footer><button class="primary" disabled={task.busy || !token.trim()}>Go on</button></footer>
        </form>
      </Card>
      <Card title="With a new one">
        <p class="hint">A token is added to the tenant, in the configuration and in the audit log. Revoke it afterwards under Tenants.</p>
        {names.length > 0 ? <Choice label="Tenant" value={chosen} set={setTenant} options={names} /> : <p class="dim">There is no tenant yet.</p>}
        <footer><button type="button" disabled={task.busy || !chosen} onClick={make}>Make a token</button></footer>
      </Card>
      <Failure error={task.error ?? tenants.error} />
    </div>
  );
}

function Panel({ who, name, leave }: { who: CallerType; name: string; leave: () => void }) {
  const providers = usePolled(() => who.get<{ providers: Provider[] }>("/api/v1/providers"), 0);
  const [session] = useState(() => "try-" + Array.from(crypto.getRandomValues(new Uint8Array(4)), (b) => b.toString(16).padStart(2, "0")).join(""));
  const [language, setLanguage] = useState("python");
  const [provider, setProvider] = useState("");
  const [code, setCode] = useState(samples.python!);
  const [end, setEnd] = useState<Execution>();
  const [instance, setInstance] = useState("");
  const [running, setRunning] = useState<AbortController>();
  const task = useTask();
  const output = useRef<HTMLPreElement>(null);
  const list = providers.value?.providers ?? [];
  const can = list.find((p) => p.id === provider) ?? list[0];
  const languages = [...new Set(list.flatMap((p) => p.languages))];
  const write = (text: string, kind: string) => {
    const piece = document.createElement("span");
    piece.className = kind;
    piece.textContent = text;
    output.current?.append(piece);
    if (output.current) output.current.scrollTop = output.current.scrollHeight;
  };
  const run = () => task.run(async () => {
    output.current?.replaceChildren();
    setEnd(undefined);
    const abort = new AbortController();
    setRunning(abort);
    try {
      const response = await who.send("POST", "/api/v1/execute", {
        body: { code, language, session_id: session, ...(provider && { provider }), wait_ms: 10_000 }, accept: "text/event-stream", signal: abort.signal,
      });
      for await (const e of events(response)) {
        const data = e.data as { text?: string; base64?: string; instance_id?: string; detail?: string; code?: string };
        if (e.name === "started" && data.instance_id) setInstance(data.instance_id);
        else if (e.name === "stdout" || e.name === "stderr") write(data.text ?? "[bytes]", e.name);
        else if (e.name === "done") setEnd(e.data as Execution);
        else if (e.name === "error") throw new Error(`${data.code}: ${data.detail}`);
      }
    } catch (e) {
      if (!abort.signal.aborted) throw e;
      write("\n[stopped]\n", "stderr");
    } finally {
      setRunning(undefined);
    }
  });
  const finish = () => task.run(async () => {
    running?.abort();
    if (instance) await who.ask("DELETE", "/api/v1/instances/" + encodeURIComponent(instance));
    setInstance("");
    setEnd(undefined);
  });
  const choose = (l: string) => { if (Object.values(samples).includes(code)) setCode(samples[l] ?? ""); setLanguage(l); };
  return (
    <>
      <Card title={`As tenant ${name}`} actions={<><button type="button" disabled={!instance || task.busy} onClick={finish}>Destroy the instance</button><button type="button" onClick={() => { running?.abort(); leave(); }}>Forget the token</button></>}>
        <form onSubmit={(e) => { e.preventDefault(); void run(); }}>
          <div class="inline">
            <Choice label="Language" value={language} set={choose} options={languages.length ? languages : ["python"]} />
            <Choice label="Provider" value={provider} set={setProvider} options={[["", "the usual one"], ...list.map((p): [string, string] => [p.id, `${p.id} (${p.state})`])]} />
          </div>
          <label class="dim" for="try-code">Code</label>
          <textarea id="try-code" class="code" spellcheck={false} value={code} onInput={(e) => setCode(e.currentTarget.value)}
            onKeyDown={(e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); void run(); } }} />
          <footer>
            {running && <button type="button" onClick={() => running.abort()}>Stop</button>}
            <button class="primary" disabled={task.busy}>Run</button>
          </footer>
        </form>
        <Failure error={task.error ?? providers.error} />
        <pre class="output" ref={output} tabIndex={0} aria-label="Output" aria-live="polite" />
        {end && (
          <p role="status">
            <Badge kind={end.status === "succeeded" ? "good" : "bad"}>{end.status}</Badge> exit code {end.exit_code}, {figure(end.execution_time * 1000)} ms
            {end.memory_used_mb !== undefined && `, ${figure(end.memory_used_mb)} MiB`} on {end.provider}
            {end.error && <span> {end.error.code}: {end.error.detail}</span>}
          </p>
        )}
        {end?.artifacts?.map((a) => a.base64 && a.mime_type?.startsWith("image/") && a.mime_type !== "image/svg+xml"
          ? <img alt={a.name ?? "What the code showed"} src={`data:${a.mime_type};base64,${a.base64}`} />
          : a.text && <pre>{a.text}</pre>)}
      </Card>
      {instance && can?.capabilities.includes("files") && <Files key={instance} who={who} instance={instance} />}
      {instance && can?.capabilities.includes("commands") && <Terminal key={"t" + instance} who={who} instance={instance} />}
    </>
  );
}

function Files({ who, instance }: { who: CallerType; instance: string }) {
  const below = "/api/v1/instances/" + encodeURIComponent(instance) + "/files";
  const files = usePolled(() => who.get<{ files: FileEntry[]; truncated: boolean }>(withQuery(below, { path: "/workspace", depth: 3 })), 0);
  const task = useTask();
  const picked = useRef<HTMLInputElement>(null);
  const up = (list: FileList | null) => task.run(async () => {
    for (const f of list ?? []) await who.ask("PUT", withQuery(below + "/content", { path: f.name }), { raw: f });
    if (picked.current) picked.current.value = "";
    files.refresh();
  });
  const down = (path: string) => task.run(async () => {
    const blob = await (await who.send("GET", withQuery(below + "/content", { path }), { accept: "*/*" })).blob();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = path.split("/").pop() ?? "file";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
  const rows = files.value?.files ?? [];
  return (
    <Card title="Files in /workspace" actions={<button type="button" onClick={files.refresh}>Look again</button>}>
      <Failure error={task.error ?? files.error} />
      <div class="field"><label for="try-files">Put files there</label><input id="try-files" ref={picked} type="file" multiple disabled={task.busy} onChange={(e) => up(e.currentTarget.files)} /></div>
      <Table label="Files" rows={rows.length} empty="There are none." head={["Path", "Size", "Actions"]}>
        {rows.map((f) => (
          <tr key={f.path}><td><code>{f.path}</code>{f.type !== "file" && <span class="dim"> {f.type}</span>}</td><td class="number">{f.type === "file" && figure(f.size)}</td>
            <td>{f.type === "file" && <button type="button" class="small" aria-label={`Download ${f.path}`} onClick={() => down(f.path)}>Download</button>}</td></tr>
        ))}
      </Table>
      {files.value?.truncated && <p class="dim">There are more.</p>}
    </Card>
  );
}

function Terminal({ who, instance }: { who: CallerType; instance: string }) {
  const [open, setOpen] = useState(false);
  const [said, setSaid] = useState("");
  const into = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open || !into.current) return;
    let over = false, end = () => {};
    setSaid("");
    void (async () => {
      try {
        const { attach } = await import("./terminal");
        if (over) return;
        end = await attach(who, instance, into.current!, (why) => { setSaid(why); setOpen(false); });
        if (over) end();
      } catch (e) {
        setSaid(e instanceof Error ? e.message : String(e));
        setOpen(false);
      }
    })();
    return () => { over = true; end(); };
  }, [open]);
  return (
    <Card title="Terminal" actions={<button type="button" onClick={() => setOpen(!open)}>{open ? "Close" : "Open a terminal"}</button>}>
      {open ? <div class="terminal" ref={into} /> : <p class="dim" role="status">{said || "A shell in the instance."}</p>}
    </Card>
  );
}
