// The audit log, and whether its chain is whole.
import { useEffect, useState } from "preact/hooks";
import { admin, withQuery } from "./api";
import type { Caller } from "./api";
import type { AuditPage, Chain } from "./types";
import { Badge, Card, Dialog, Failure, Table, TextField, Time, useTask } from "./ui";

const verdicts: Record<string, ["good" | "bad" | "warn" | "plain", string]> = {
  whole: ["good", "The chain is whole"], broken: ["bad", "The chain is broken"], unchecked: ["warn", "Not checked to its end yet"], off: ["plain", "There is no audit log in a file"],
};

const text = (v: unknown) => v === undefined || v === null ? "" : typeof v === "object" ? JSON.stringify(v) : String(v);

// Who caused an effect: a tenant by a request, an administrator, or the broker by itself.
const who = (line: Record<string, unknown>) =>
  line.cause === "admin" ? "administrator" : line.cause === "request" ? text(line.tenant_id) : text(line.cause);

export function Audit({ caller }: { caller: Caller }) {
  const [query, setQuery] = useState<Record<string, string>>({});
  const [lines, setLines] = useState<Record<string, unknown>[]>([]);
  const [next, setNext] = useState<string>();
  const [chain, setChain] = useState<Chain>();
  const [looked, look] = useState<Record<string, unknown>>();
  const task = useTask();
  const search = (before?: string) => task.run(async () => {
    const page = await caller.get<AuditPage>(withQuery(admin("audit"), { ...query, before, limit: 100 }));
    setLines(before ? [...lines, ...page.data] : page.data);
    setNext(page.next);
    setChain(page.chain);
  });
  useEffect(() => void search(), []);
  const field = (name: string, label: string, hint?: string) =>
    <TextField label={label} value={query[name] ?? ""} set={(v) => setQuery({ ...query, [name]: v.trim() })} hint={hint} />;
  const [kind, verdict] = verdicts[chain?.state ?? ""] ?? ["plain", chain?.state ?? ""];
  return (
    <>
      <form onSubmit={(e) => { e.preventDefault(); void search(); }}>
        <div class="inline">
          {field("text", "Text", "anywhere in a line")}{field("tenant", "Tenant")}{field("operation", "Operation")}{field("outcome", "Outcome")}
          {field("instance", "Instance")}{field("request_id", "Request")}
          <div class="field"><button class="primary" disabled={task.busy}>Search</button></div>
        </div>
      </form>
      <Failure error={task.error} />
      {chain && (
        <Card>
          <p role="status"><Badge kind={kind}>{verdict}</Badge> {chain.lines !== undefined && `${chain.lines.toLocaleString("en")} lines`} {chain.checked_at && <>checked <Time at={chain.checked_at} /></>} {chain.detail}</p>
        </Card>
      )}
      <Table label="Audit log" rows={lines.length} empty={task.busy ? "Please wait." : "No such line."} head={["Time", "Who", "Did", "With", "Status", "Line"]}>
        {lines.map((l, n) => (
          <tr key={n}>
            <td><Time at={text(l.timestamp)} /></td><td>{who(l)}</td><td>{text(l.operation) || text(l.note)} <span class="dim">{text(l.event)}</span></td>
            <td class="wide"><code>{text(l.instance_id ?? l.provider ?? l.change)}</code></td>
            <td>{text(l.status) && <Badge kind={l.status === "succeeded" ? "good" : "warn"}>{text(l.status)}</Badge>} {text(l.code)}</td>
            <td><button type="button" class="small" aria-label={`All of line ${text(l.seq ?? n)}`} onClick={() => look(l)}>All</button></td>
          </tr>
        ))}
      </Table>
      {next && <footer><button type="button" disabled={task.busy} onClick={() => search(next)}>Older</button></footer>}
      {looked && (
        <Dialog title="A line of the audit log" close={() => look(undefined)} wide>
          <dl>{Object.entries(looked).map(([k, v]) => <><dt>{k}</dt><dd>{text(v)}</dd></>)}</dl>
          <footer><button type="button" onClick={() => look(undefined)}>Close</button></footer>
        </Dialog>
      )}
    </>
  );
}
