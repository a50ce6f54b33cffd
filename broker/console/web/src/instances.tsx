// The live instances of all tenants.
import { useState } from "preact/hooks";
import { admin, withQuery } from "./api";
import type { Caller } from "./api";
import type { Instance, Metrics } from "./types";
import { Badge, Bar, Confirm, Dialog, Failure, Silent, Table, TextField, Time, usePolled } from "./ui";

interface Page { data: Instance[]; next?: string; silent?: string[] }

export function Instances({ caller }: { caller: Caller }) {
  const [text, setText] = useState("");
  const [tenant, setTenant] = useState("");
  const [provider, setProvider] = useState("");
  const [after, setAfter] = useState<string[]>([]);
  const [looked, look] = useState("");
  const [killed, kill] = useState("");
  const query = { text: text.trim(), tenant: tenant.trim(), provider: provider.trim(), limit: 50, after: after.at(-1) };
  const page = usePolled(() => caller.get<Page>(withQuery(admin("instances"), query)), 3000, Object.values(query));
  const set = (f: (v: string) => void) => (v: string) => { f(v); setAfter([]); };
  const rows = page.value?.data ?? [];
  const several = rows.some((i) => i.broker);
  return (
    <>
      <div class="inline">
        <TextField label="Find" type="search" value={text} set={set(setText)} hint="A part of an ID, a session or a template" />
        <TextField label="Tenant" value={tenant} set={set(setTenant)} hint="Its whole name" />
        <TextField label="Provider" value={provider} set={set(setProvider)} hint="Its label" />
      </div>
      <Failure error={page.error} />
      <Silent brokers={page.value?.silent} />
      <Table label="Instances" rows={rows.length} empty={page.value ? "No such instance lives." : "Please wait."} head={["Tenant", "Session", "Provider", "Template", "State", "Executions", "Created", "Ends", ...(several ? ["Broker"] : []), "Actions"]}>
        {rows.map((i) => (
          <tr key={i.id}>
            <td>{i.tenant}</td><td>{i.session_id}</td><td>{i.provider}</td><td>{i.template}</td>
            <td><Badge kind={i.state === "running" ? "good" : "plain"}>{i.state}</Badge></td><td class="number">{i.executions}</td>
            <td><Time at={i.created_at} /></td><td><Time at={i.expires_at} /></td>
            {several && <td><code>{i.broker}</code></td>}
            <td><div class="actions"><button type="button" class="small" aria-label={`Details of ${i.id}`} onClick={() => look(i.id)}>Details</button><button type="button" class="small danger" aria-label={`Kill ${i.id}`} onClick={() => kill(i.id)}>Kill</button></div></td>
          </tr>
        ))}
      </Table>
      <footer>
        {after.length > 0 && <button type="button" onClick={() => setAfter(after.slice(0, -1))}>Back</button>}
        {page.value?.next && <button type="button" onClick={() => setAfter([...after, page.value!.next!])}>More</button>}
      </footer>
      {looked && <Details caller={caller} id={looked} close={() => look("")} kill={() => kill(looked)} />}
      {killed && (
        <Confirm title="Kill the instance?" button="Kill" close={() => kill("")} act={async () => { await caller.ask("DELETE", admin("instances", killed)); look(""); page.refresh(); }}>
          <p><code>{killed}</code></p><p>What runs in it ends at once and is answered as cancelled by an administrator. Its files are gone.</p>
        </Confirm>
      )}
    </>
  );
}

function Details({ caller, id, close, kill }: { caller: Caller; id: string; close: () => void; kill: () => void }) {
  const one = usePolled(() => caller.get<{ data: Instance }>(admin("instances", id)), 3000);
  const metrics = usePolled(() => caller.get<{ data: Metrics }>(admin("instances", id, "metrics")), 2000);
  const i = one.value?.data, m = metrics.value?.data;
  return (
    <Dialog title="Instance" close={close} wide>
      <Failure error={one.error} />
      {i && (
        <dl>
          <dt>ID</dt><dd><code>{i.id}</code></dd><dt>Tenant</dt><dd>{i.tenant}</dd><dt>Session</dt><dd>{i.session_id}</dd>
          <dt>Provider</dt><dd>{i.provider}</dd><dt>Template</dt><dd>{i.template}</dd><dt>State</dt><dd>{i.state}, {i.executions} executions</dd>
          {i.front_door && <><dt>Made by</dt><dd>{i.front_door}</dd></>}
          <dt>Created</dt><dd><Time at={i.created_at} /></dd><dt>Last used</dt><dd><Time at={i.last_used_at} /></dd><dt>Ends</dt><dd><Time at={i.expires_at} /></dd>
          {Object.entries(i.metadata ?? {}).map(([k, v]) => <><dt>{k}</dt><dd>{v}</dd></>)}
          {Object.entries(i.labels ?? {}).map(([k, v]) => <><dt>label {k}</dt><dd>{v}</dd></>)}
        </dl>
      )}
      <h3>What it uses</h3>
      {metrics.error ? <p class="dim">{metrics.error instanceof Error ? metrics.error.message : ""}</p> : m && (
        <div class="bars">
          {m.memory_mb !== undefined && <Bar label="Memory" used={m.memory_mb} limit={m.memory_limit_mb} unit=" MiB" />}
          {m.disk_mb !== undefined && <Bar label="Disk" used={m.disk_mb} limit={m.disk_limit_mb} unit=" MiB" />}
          {m.processes !== undefined && <Bar label="Processes" used={m.processes} limit={m.process_limit} />}
          {m.cpu_time !== undefined && <Bar label="Processor time" used={m.cpu_time} unit=" s" />}
        </div>
      )}
      <footer><button type="button" class="danger" onClick={kill}>Kill</button><button type="button" onClick={close}>Close</button></footer>
    </Dialog>
  );
}
