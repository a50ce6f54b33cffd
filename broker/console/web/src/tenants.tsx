// Tenants: what they use and may use, and their tokens.
import { useState } from "preact/hooks";
import { Problem, admin } from "./api";
import type { Caller } from "./api";
import type { Changed, Tenant, Usage } from "./types";
import { Card, Confirm, Dialog, Failure, Silent, Once, TextField, UsageBars, limitName, limitOrder, usePolled, useTask } from "./ui";

interface NewToken { token: string; token_id: string }
interface Secret { of: string; token: string; why: string }

export function Tenants({ caller }: { caller: Caller }) {
  const tenants = usePolled(() => caller.ask<{ data: Tenant[] }>("GET", admin("tenants")), 5000);
  const usage = usePolled(() => caller.get<{ data: Usage[]; silent?: string[] }>(admin("usage")), 3000);
  const [text, setText] = useState("");
  const [adding, setAdding] = useState(false);
  const [secret, setSecret] = useState<Secret>();
  const all = tenants.value?.data.data ?? [];
  const etag = tenants.value?.etag ?? "";
  const shown = all.filter((t) => t.name.includes(text.trim()));
  const props = { caller, etag, changed: tenants.refresh, tell: setSecret };
  return (
    <>
      <div class="inline">
        <TextField label="Find a tenant" type="search" value={text} set={setText} />
        <div class="field"><button type="button" class="primary" onClick={() => setAdding(true)}>Add a tenant</button></div>
      </div>
      <Failure error={tenants.error ?? usage.error} />
      <Silent brokers={usage.value?.silent} />
      {tenants.value && !shown.length && <p class="dim">{all.length ? "No tenant has such a name." : "There are no tenants."}</p>}
      <div class="columns">
        {shown.map((t) => <One key={t.name} {...props} tenant={t} usage={usage.value?.data.find((u) => u.tenant === t.name)} />)}
      </div>
      {adding && <Edit {...props} close={() => setAdding(false)} />}
      {secret && (
        <Once title={`Token of ${secret.of}`} secret={secret.token} close={() => setSecret(undefined)}>
          <p>{secret.why} Keep it now: the configuration has only its sum, and it cannot be shown again.</p>
        </Once>
      )}
    </>
  );
}

interface Props { caller: Caller; etag: string; changed: () => void; tell: (s: Secret) => void }

function One({ caller, tenant, usage, etag, changed, tell }: Props & { tenant: Tenant; usage?: Usage }) {
  const task = useTask();
  const [open, setOpen] = useState<"edit" | "remove" | { token: string }>();
  const close = () => setOpen(undefined);
  const token = (why: string, ...path: string[]) => task.run(async () => {
    const { data } = await caller.ask<NewToken>("POST", admin("tenants", tenant.name, "tokens", ...path));
    changed();
    tell({ of: tenant.name, token: data.token, why });
  });
  return (
    <Card title={tenant.name} actions={<><button type="button" class="small" aria-label={`Change ${tenant.name}`} onClick={() => setOpen("edit")}>Change</button><button type="button" class="small danger" aria-label={`Remove ${tenant.name}`} onClick={() => setOpen("remove")}>Remove</button></>}>
      {usage ? <UsageBars lines={usage.limits} /> : <p class="dim">Nothing is used yet.</p>}
      {usage && usage.waiting > 0 && <p>{usage.waiting} requests wait for their turn.</p>}
      <p class="hint">Providers: {tenant.providers.join(", ") || "all"}</p>
      <h3>Tokens</h3>
      <ul class="order">
        {tenant.tokens.map(({ id }) => (
          <li key={id}>
            <div class="actions">
              <code>{id}</code>
              <button type="button" class="small" disabled={task.busy} aria-label={`Rotate token ${id}`} onClick={() => token("The old token lets nobody in any more.", id, "rotate")}>Rotate</button>
              <button type="button" class="small danger" disabled={tenant.tokens.length < 2} title={tenant.tokens.length < 2 ? "The last token cannot be revoked." : undefined} aria-label={`Revoke token ${id}`} onClick={() => setOpen({ token: id })}>Revoke</button>
            </div>
          </li>
        ))}
      </ul>
      <p><button type="button" class="small" disabled={task.busy} aria-label={`Add a token for ${tenant.name}`} onClick={() => token("A further token.")}>Add a token</button></p>
      <Failure error={task.error} />
      {open === "edit" && <Edit {...{ caller, etag, changed, tell }} tenant={tenant} close={close} />}
      {open === "remove" && (
        <Confirm title={`Remove ${tenant.name}?`} word={tenant.name} button="Remove" close={close}
          act={async () => { await caller.ask<Changed>("DELETE", admin("tenants", tenant.name), { ifMatch: etag }); changed(); }}>
          <p>Its instances are destroyed, what runs in them is cancelled, and its tokens let nobody in.</p>
        </Confirm>
      )}
      {typeof open === "object" && (
        <Confirm title="Revoke the token?" button="Revoke" close={close}
          act={async () => { await caller.ask<Changed>("DELETE", admin("tenants", tenant.name, "tokens", open.token)); changed(); }}>
          <p>Who has token <code>{open.token}</code> of {tenant.name} is let in no more.</p>
        </Confirm>
      )}
    </Card>
  );
}

/** Edit adds a tenant, or changes one. */
function Edit({ caller, changed, tell, close, ...live }: Props & { tenant?: Tenant; close: () => void }) {
  // What the draft is compared with, and its ETag, are those of the moment when it began.
  const [{ tenant, etag }] = useState(live);
  const task = useTask();
  const [name, setName] = useState(tenant?.name ?? "");
  const [providers, setProviders] = useState(tenant?.providers.join(", ") ?? "");
  const [quota, setQuota] = useState<Record<string, string>>(Object.fromEntries(Object.entries(tenant?.quota ?? {}).map(([k, v]) => [k, String(v)])));
  const errors: Record<string, string> = {};
  if (task.error instanceof Problem) for (const e of task.error.errors) errors[e.field] = e.detail;
  const names = [...limitOrder, ...Object.keys(quota).filter((k) => !limitOrder.includes(k))];
  const submit = () => task.run(async () => {
    const list = providers.split(/[\s,]+/).filter(Boolean);
    const wanted: Record<string, number | string | null> = {};
    for (const k of names) {
      const now = (quota[k] ?? "").trim(), before = tenant?.quota[k];
      if (now === (before === undefined ? "" : String(before))) continue;
      wanted[k] = now === "" ? null : Number.isFinite(Number(now)) ? Number(now) : now;
    }
    if (tenant) {
      await caller.ask<Changed>("PATCH", admin("tenants", tenant.name), { body: { ...(list.join() !== tenant.providers.join() && { providers: list }), quota: wanted }, ifMatch: etag });
    } else {
      const { data } = await caller.ask<NewToken>("POST", admin("tenants"), { body: { name: name.trim(), providers: list, quota: Object.fromEntries(Object.entries(wanted).filter(([, v]) => v !== null)) }, ifMatch: etag });
      tell({ of: name.trim(), token: data.token, why: "The first token of the tenant." });
    }
    changed();
    close();
  });
  return (
    <Dialog title={tenant ? `Change ${tenant.name}` : "Add a tenant"} close={close}>
      <form onSubmit={(e) => { e.preventDefault(); void submit(); }}>
        {!tenant && <TextField label="Name" value={name} set={setName} required autofocus error={errors["name"]} hint="a-z, 0-9, _ and -" />}
        <TextField label="Providers" value={providers} set={setProviders} error={errors["providers"]} hint="Labels of those that it may use, with commas between; all if empty." />
        <fieldset>
          <legend>Quotas</legend>
          <p class="hint">Empty: the one for all tenants holds, or none.</p>
          {names.map((k) => <TextField key={k} label={<>{limitName(k)} <code>{k}</code></>} value={quota[k] ?? ""} set={(v) => setQuota({ ...quota, [k]: v })} error={errors["quota." + k]} />)}
        </fieldset>
        <Failure error={task.error} />
        <footer><button type="button" onClick={close}>Cancel</button><button class="primary" disabled={task.busy || (!tenant && !name.trim())}>{tenant ? "Apply" : "Add"}</button></footer>
      </form>
    </Dialog>
  );
}
