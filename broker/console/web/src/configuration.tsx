// The configuration as a whole: its last attempts, reading it again, and the way back.
import { useState } from "preact/hooks";
import { admin } from "./api";
import type { Caller } from "./api";
import { Result } from "./overview";
import { Consequences } from "./providers";
import type { Changed, Config, Reload } from "./types";
import { Badge, Card, Dialog, Difference, Diagnostics, Failure, Table, Time, usePolled, useTask } from "./ui";

export function Configuration({ caller }: { caller: Caller }) {
  const config = usePolled(() => caller.ask<Config>("GET", admin("config")), 5000);
  const generations = usePolled(() => caller.get<{ data: Reload[] }>(admin("generations")), 5000);
  const task = useTask();
  const [plan, setPlan] = useState<{ title: string; what: Changed; act: () => Promise<unknown> }>();
  const [looked, look] = useState<Reload>();
  const meta = config.value?.data.meta;
  const again = () => { config.refresh(); generations.refresh(); };
  const propose = (title: string, path: string, ifMatch?: string) => task.run(async () => {
    const { data } = await caller.ask<Changed>("POST", path, { body: { dry_run: true }, ifMatch });
    setPlan({ title, what: data, act: () => caller.ask("POST", path, { body: {}, ifMatch }) });
  });
  const apply = () => task.run(async () => {
    try { await plan!.act(); } finally { setPlan(undefined); again(); }
  });
  const reload = plan?.what.reload ?? plan?.what.data;
  return (
    <>
      <Failure error={config.error ?? generations.error} /><Failure error={task.error} />
      {meta && (
        <Card title={`Generation ${meta.generation}`} actions={<button type="button" disabled={task.busy} onClick={() => propose("Read the files again", admin("reload"))}>Read the files again</button>}>
          <dl>
            <dt>Files</dt><dd>{meta.files.map((f) => <><code>{f}</code> </>)}</dd>
            <dt>Changed here</dt><dd>{meta.writable ? "yes" : `no: ${meta.read_only}`}</dd>
            <dt>New secrets</dt><dd>{meta.seals ? "are sealed" : "need a key file to be sealed with"}</dd>
            <dt>In force</dt><dd>{meta.differs ? <Badge kind="bad">the files are others than those in force</Badge> : <Badge kind="good">what the files say</Badge>}</dd>
          </dl>
        </Card>
      )}
      {meta?.last_refused && (
        <Card title="The last that was refused">
          <p><Time at={meta.last_refused.at} /> {meta.last_refused.operation ?? meta.last_refused.trigger}</p>
          <Diagnostics of={meta.last_refused.diagnostics} />
        </Card>
      )}
      <Card title="The last attempts">
        <Table label="Attempts" rows={generations.value?.data.length ?? 0} head={["Generation", "When", "By", "What", "Result", "Actions"]}>
          {generations.value?.data.map((g, n) => (
            <tr key={`${g.generation}/${g.at}/${n}`}>
              <td class="number">{g.generation}</td><td><Time at={g.at} /></td><td>{g.trigger}</td><td class="wide">{g.operation ?? ""}</td><td><Result of={g.result} /></td>
              <td><div class="actions">
                <button type="button" class="small" aria-label={`Details of generation ${g.generation}`} onClick={() => look(g)}>Details</button>
                {g.restorable && g.generation !== meta?.generation && (
                  <button type="button" class="small" disabled={task.busy || !meta?.writable} aria-label={`Roll back to generation ${g.generation}`}
                    onClick={() => propose(`Roll back to generation ${g.generation}`, admin("generations", String(g.generation), "restore"), config.value?.etag)}>Roll back</button>
                )}
              </div></td>
            </tr>
          ))}
        </Table>
      </Card>
      {looked && (
        <Dialog title={`Attempt of ${new Date(looked.at).toLocaleString()}`} close={() => look(undefined)} wide>
          <p><Result of={looked.result} /> in {looked.took_ms.toFixed(0)} ms</p>
          <Consequences of={looked} /><Diagnostics of={looked.diagnostics} />
          <footer><button type="button" onClick={() => look(undefined)}>Close</button></footer>
        </Dialog>
      )}
      {plan && (
        <Dialog title={plan.title} close={() => setPlan(undefined)} wide>
          {plan.what.difference !== undefined && <Difference text={plan.what.difference} />}
          {reload && <><p><Result of={reload.result} /></p><Consequences of={reload} /><Diagnostics of={reload.diagnostics} /></>}
          <footer>
            <button type="button" onClick={() => setPlan(undefined)}>Back</button>
            <button type="button" class="primary" disabled={task.busy || reload?.result !== "would_apply"} onClick={apply}>Apply</button>
          </footer>
        </Dialog>
      )}
    </>
  );
}
