// The providers: in which order they serve, how they are, and their settings.
import { useEffect, useState } from "preact/hooks";
import { Problem, admin } from "./api";
import type { Caller } from "./api";
import { Sections, payload } from "./form";
import { State } from "./overview";
import type { Changed, Config, Provider, Settings, Trial } from "./types";
import { Badge, Bar, Card, Check, Choice, Dialog, Difference, Diagnostics, Failure, TextField, Time, usePolled, useTask } from "./ui";

export function Providers({ caller }: { caller: Caller }) {
  const providers = usePolled(() => caller.get<{ data: Provider[] }>(admin("providers")), 3000);
  const config = usePolled(() => caller.ask<Config>("GET", admin("config")), 0);
  const [chosen, choose] = useState("");
  const all = providers.value?.data ?? [];
  const now = all.find((p) => p.id === chosen) ?? all.find((p) => p.active) ?? all[0];
  const again = () => { config.refresh(); providers.refresh(); };
  const meta = config.value?.data.meta;
  return (
    <>
      <Failure error={providers.error} /><Failure error={config.error} />
      {meta && !meta.writable && <p class="failure">The files cannot be changed here: {meta.read_only}</p>}
      {meta?.differs && <p class="failure">The files are not those in force. Look at <a href="/admin/configuration">Configuration</a>.</p>}
      <div class="split">
        {meta && <Order caller={caller} all={all} fallback={meta.fallback} etag={config.value!.etag} chosen={now?.id ?? ""} choose={choose} changed={again} />}
        {now && config.value && <Details key={now.id} caller={caller} provider={now} config={config.value.data} etag={config.value.etag} changed={again} />}
      </div>
    </>
  );
}

interface OrderProps { caller: Caller; all: Provider[]; fallback: string[]; etag: string; chosen: string; choose: (id: string) => void; changed: () => void }

/** Order shows who serves first and who after it, which can be changed by drag or keys. */
function Order({ caller, all, fallback, etag, chosen, choose, changed }: OrderProps) {
  const task = useTask();
  const active = all.find((p) => p.active)?.id ?? "";
  const inForce = [active, ...fallback.filter((id) => id !== active)].filter(Boolean);
  const [draft, setDraft] = useState<string[]>();
  const [dragged, setDragged] = useState("");
  const [over, setOver] = useState("");
  const [adding, setAdding] = useState(false);
  const order = draft ?? inForce;
  const rest = all.filter((p) => !order.includes(p.id) && p.state !== "not_configured");
  const plugins = all.filter((p) => p.state === "not_configured");
  const move = (id: string, to: number) => {
    const next = order.filter((o) => o !== id);
    next.splice(to, 0, id);
    setDraft(next);
  };
  const save = () => task.run(async () => {
    await caller.ask<Changed>("PUT", admin("active"), { body: { provider: order[0], fallback: order.slice(1) }, ifMatch: etag });
    setDraft(undefined);
    changed();
  });
  const entry = (id: string, place: number) => {
    const p = all.find((one) => one.id === id);
    return (
      <li key={id} class={(id === chosen ? "chosen " : "") + (over === id ? "over" : "")} draggable={place >= 0}
        onDragStart={(e) => { setDragged(id); e.dataTransfer?.setData("text/plain", id); }}
        onDragOver={(e) => { if (dragged && place >= 0) { e.preventDefault(); setOver(id); } }}
        onDragLeave={() => setOver("")}
        onDrop={(e) => { e.preventDefault(); if (dragged) move(dragged, place); setDragged(""); setOver(""); }}>
        <div class="name">
          <button type="button" class="plain" aria-pressed={id === chosen} onClick={() => choose(id)}>{id}</button>
          {p && <State of={p} />} {place === 0 && <Badge kind="plain">active</Badge>} {place > 0 && <Badge kind="plain">{place}. fallback</Badge>}
        </div>
        {p?.reason && <div class="dim">{p.reason}</div>}
        {p && <div class="hint">{p.supported_languages.join(", ")}</div>}
        <div class="actions">
          {place > 0 && <button type="button" class="small" aria-label={`Move ${id} up`} onClick={() => move(id, place - 1)}>↑</button>}
          {place >= 0 && place < order.length - 1 && <button type="button" class="small" aria-label={`Move ${id} down`} onClick={() => move(id, place + 1)}>↓</button>}
          {place !== 0 && <button type="button" class="small" aria-label={`Make active: ${id}`} onClick={() => move(id, 0)}>Make active</button>}
          {place > 0 && <button type="button" class="small" aria-label={`Take out: ${id}`} onClick={() => setDraft(order.filter((o) => o !== id))}>Take out</button>}
          {place < 0 && <button type="button" class="small" aria-label={`Add to fallback: ${id}`} onClick={() => move(id, order.length)}>Add to fallback</button>}
        </div>
      </li>
    );
  };
  return (
    <div>
      <Card title="Who serves" actions={plugins.length > 0 && <button type="button" onClick={() => setAdding(true)}>Add a provider</button>}>
        <p class="hint">The first is active: it serves requests that name no provider. The others take over from it in this order. Drag them, or use the buttons.</p>
        <ul class="order">{order.map((id, i) => entry(id, i))}</ul>
        {rest.length > 0 && <><h3>Only on request</h3><ul class="order">{rest.map((p) => entry(p.id, -1))}</ul></>}
        {draft && (
          <footer>
            <button type="button" onClick={() => setDraft(undefined)}>Undo</button>
            <button type="button" class="primary" disabled={task.busy} onClick={save}>Apply the order</button>
          </footer>
        )}
        <Failure error={task.error} />
        <Superseded task={task} etag={etag} load={changed} />
      </Card>
      {adding && <AddProvider caller={caller} plugins={plugins} etag={etag} renew={changed} close={() => setAdding(false)} added={(id) => { setAdding(false); choose(id); changed(); }} />}
    </div>
  );
}

function AddProvider({ caller, plugins, etag, renew, close, added }: { caller: Caller; plugins: Provider[]; etag: string; renew: () => void; close: () => void; added: (id: string) => void }) {
  const [plugin, setPlugin] = useState(plugins[0]!.id);
  const [label, setLabel] = useState("");
  const [draft, setDraft] = useState<Settings>({});
  const chosen = plugins.find((p) => p.id === plugin)!;
  const name = label.trim() || plugin;
  return (
    <Dialog title="Add a provider" close={close} wide>
      <div class="inline">
        <Choice label="Plugin" value={plugin} set={(p) => { setPlugin(p); setDraft({}); }} options={plugins.map((p): [string, string] => [p.id, `${p.id}${p.description ? ": " + p.description : ""}`])} />
        <TextField label="Label" value={label} set={setLabel} placeholder={plugin} hint="How it is called here; that of the plugin unless given." />
      </div>
      <Editor caller={caller} schema={chosen.config_schema} shown={{}} origins={{}} draft={draft} setDraft={setDraft} readOnly={false} etag={etag} renew={renew}
        request={(config) => ({ provider_type: name, ...(name !== plugin && { plugin: chosen.plugin.file || plugin }), config })} done={() => added(name)} isNew />
    </Dialog>
  );
}

function Details({ caller, provider, config, etag, changed }: { caller: Caller; provider: Provider; config: Config; etag: string; changed: () => void }) {
  const [draft, setDraft] = useState<Settings>({});
  const shown = (config.data[provider.id] as Settings) ?? {};
  const fresh = provider.state === "not_configured";
  return (
    <div>
      <Card title={provider.name} actions={<State of={provider} />}>
        <p>{provider.description}</p>
        <dl>
          <dt>Plugin</dt><dd>{provider.plugin.name || provider.plugin.file} {provider.plugin.version}</dd>
          <dt>Languages</dt><dd>{provider.supported_languages.join(", ") || "unknown"}</dd>
          <dt>Can do</dt><dd>{provider.capabilities.map((c) => <><Badge kind="plain">{c}</Badge> </>)}</dd>
          {!fresh && <><dt>Since</dt><dd><Time at={provider.since} />, {provider.restarts} restarts{provider.draining > 0 && `, ${provider.draining} earlier processes drain`}</dd></>}
          {!fresh && <><dt>Circuit</dt><dd>{provider.circuit.state.replace("_", " ")}{provider.circuit.failures > 0 && `, ${provider.circuit.failures} failures in a row`}{provider.circuit.creation_seconds !== undefined && `; a creation takes ${provider.circuit.creation_seconds.toFixed(2)} s`}</dd></>}
        </dl>
        <Facts of={provider.details} />
        {provider.last_error && (
          <details><summary>Its last failure, <Time at={provider.last_error.at} /></summary><p>{provider.last_error.message}</p>{provider.last_error.stderr && <pre>{provider.last_error.stderr}</pre>}</details>
        )}
      </Card>
      <Card title="Settings">
        <Editor caller={caller} schema={provider.config_schema} shown={shown} origins={config.meta.origins[provider.id] ?? {}} draft={draft} setDraft={setDraft}
          readOnly={!config.meta.writable} etag={etag} renew={changed} isNew={fresh}
          request={(settings) => ({ provider_type: provider.id, config: settings })} done={() => { setDraft({}); changed(); }} />
      </Card>
    </div>
  );
}

// A fact such as "3 of 4" is a bar.
function Facts({ of }: { of?: Record<string, string> }) {
  const facts = Object.entries(of ?? {}).map(([name, value]) => ({ name, value, parts: /^(\d+)(?: of |\/)(\d+)$/.exec(value) }));
  const bars = facts.filter((f) => f.parts), plain = facts.filter((f) => !f.parts);
  return (
    <>
      {bars.length > 0 && <div class="bars">{bars.map((f) => <Bar key={f.name} label={f.name} alarm={f.name === "in_use"} used={Number(f.parts![1])} limit={Number(f.parts![2])} />)}</div>}
      {plain.length > 0 && <dl>{plain.map((f) => <><dt>{f.name}</dt><dd>{f.value}</dd></>)}</dl>}
    </>
  );
}

interface EditorProps {
  caller: Caller; schema: Provider["config_schema"]; shown: Settings; origins: Config["meta"]["origins"][string]; draft: Settings; setDraft: (d: Settings) => void;
  readOnly: boolean; etag: string; renew: () => void; isNew: boolean; request: (config: Settings) => Settings; done: () => void;
}

/** Editor changes settings: try them, see the difference, apply it. */
function Editor({ caller, schema, shown, origins, draft, setDraft, readOnly, etag, renew, isNew, request, done }: EditorProps) {
  const task = useTask();
  const [trial, setTrial] = useState<Trial>();
  const [preview, setPreview] = useState<Changed>();
  const [active, setActive] = useState(false);
  const [applied, setApplied] = useState("");
  const [generation, setGeneration] = useState(0); // uncontrolled inputs begin anew with it
  const errors: Record<string, string> = {};
  if (task.error instanceof Problem) for (const e of task.error.errors) errors[e.field] = e.detail;
  if (trial?.field && !trial.success) errors[trial.field] = trial.message;
  const config = payload(schema, shown, draft);
  const body = (more: Settings) => ({ ...request(config), ...more });
  const changes = Object.keys(config).length;
  useEffect(() => { if (changes) setApplied(""); }, [changes]);
  const test = () => task.run(async () => { setTrial(undefined); setTrial((await caller.ask<Trial>("POST", admin("test"), { body: body({}) })).data); });
  const look = () => task.run(async () => { setPreview((await caller.ask<Changed>("POST", admin("config"), { body: body({ set_active: active, dry_run: true }), ifMatch: etag })).data); });
  const apply = () => task.run(async () => {
    try {
      const { data } = await caller.ask<Changed>("POST", admin("config"), { body: body({ set_active: active }), ifMatch: etag });
      setApplied(`In force, as generation ${(data.data ?? data.reload)?.generation ?? ""}.`);
      setGeneration((n) => n + 1);
      setTrial(undefined);
      setActive(false);
      done();
    } finally {
      setPreview(undefined);
    }
  });
  const reload = preview?.reload ?? preview?.data;
  return (
    <form onSubmit={(e) => { e.preventDefault(); void look(); }}>
      {Object.keys(schema).length === 0 && <p class="dim">It has no settings.</p>}
      <Sections key={generation} path="config" state={{ schema, shown, draft, errors, origins, readOnly }}
        change={(name, value) => {
          const next = { ...draft, [name]: value };
          if (value === undefined) delete next[name];
          setDraft(next);
        }} />
      <Check label={isNew ? "Make it the active provider" : "Make it the active provider too"} value={active} set={setActive} />
      <Failure error={task.error} />
      <Superseded task={task} etag={etag} load={renew} loaded={() => setGeneration((n) => n + 1)} />
      {trial && (
        <div class={trial.success ? "success" : "failure"} role="status">
          {trial.code && <strong>{trial.code} </strong>}{trial.message} <span class="number">{trial.latency_ms.toFixed(0)} ms</span>
          <Diagnostics of={trial.diagnostics} />
          {Object.keys(trial.details).length > 0 && <dl>{Object.entries(trial.details).map(([k, v]) => <><dt>{k}</dt><dd>{v}</dd></>)}</dl>}
        </div>
      )}
      {applied && <div class="success" role="status">{applied}</div>}
      <footer>
        <button type="button" disabled={task.busy} onClick={test}>Test connection</button>
        {changes > 0 && <button type="button" onClick={() => { setDraft({}); setActive(false); setTrial(undefined); setGeneration((n) => n + 1); task.setError(undefined); }}>Undo</button>}
        <button class="primary" disabled={task.busy || readOnly || (changes === 0 && !active && !isNew)}>{task.busy ? "Please wait" : "Look at the change"}</button>
      </footer>
      {preview && (
        <Dialog title="What would change" close={() => setPreview(undefined)} wide>
          <Difference text={preview.difference ?? ""} />
          {reload && <Consequences of={reload} />}
          <Diagnostics of={reload?.diagnostics} />
          <footer>
            <button type="button" onClick={() => setPreview(undefined)}>Back</button>
            <button type="button" class="primary" disabled={task.busy || reload?.result === "refused"} onClick={apply}>Apply</button>
          </footer>
        </Dialog>
      )}
    </form>
  );
}

// What was changed by somebody else meanwhile is loaded on request: what is in the form stays,
// and the difference shows what it comes to now. The failure stays until they are here: who
// went on before that would have it again.
function Superseded({ task, etag, load, loaded }: { task: ReturnType<typeof useTask>; etag: string; load: () => void; loaded?: () => void }) {
  const superseded = task.error instanceof Problem && task.error.code === "SB014";
  useEffect(() => {
    if (!superseded) return;
    task.setError(undefined);
    loaded?.();
  }, [etag]);
  if (!superseded) return null;
  return <p><button type="button" onClick={load}>Load the settings in force</button> <span class="hint">What you have changed here stays.</span></p>;
}

export function Consequences({ of }: { of: NonNullable<Changed["reload"]> }) {
  const c = of.change;
  const said = [
    ...c.providers.map((p) => `provider ${p.provider}: ${p.action}${p.draining ? `, ${p.draining} instances live on in the process that is there` : ""}`),
    ...c.tenants_added.map((t) => `tenant ${t} comes`), ...c.tenants_removed.map((t) => `tenant ${t} goes`), ...c.tenants_changed.map((t) => `tenant ${t} changes`),
    ...c.settings.map((s) => `${s} changes`),
  ];
  return said.length ? <ul>{said.map((s) => <li>{s}</li>)}</ul> : <p class="dim">Nothing else changes.</p>;
}
