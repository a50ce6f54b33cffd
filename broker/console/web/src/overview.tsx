// What the broker does at the moment, and did in the last minutes.
import { useEffect, useRef, useState } from "preact/hooks";
import { admin, withQuery } from "./api";
import type { Caller } from "./api";
import type { History, Provider, Series, Status } from "./types";
import { Badge, Card, Choice, Diagnostics, Failure, Time, duration, figure, usePolled } from "./ui";

export function Overview({ caller }: { caller: Caller }) {
  const status = usePolled(() => caller.get<{ data: Status }>(admin("status")), 3000);
  const providers = usePolled(() => caller.get<{ data: Provider[] }>(admin("providers")), 5000);
  const [minutes, setMinutes] = useState("15");
  const history = usePolled(() => caller.get<History>(withQuery(admin("history"), { minutes })), 5000, [minutes]);
  const s = status.value?.data;
  return (
    <>
      <Failure error={status.error} />
      {s && (
        <div class="columns">
          <Card title="Broker">
            <dl>
              <dt>Version</dt><dd>{s.version}</dd>
              <dt>Runs for</dt><dd>{duration(s.uptime_seconds)}</dd>
              <dt>Generation</dt><dd>{s.generation}, since <Time at={s.accepted_at} /></dd>
              <dt>Active</dt><dd>{s.active}{s.fallback.length > 0 && <span class="dim">, then {s.fallback.join(", ")}</span>}</dd>
            </dl>
          </Card>
          <Card title="Instances">
            <dl>{Object.entries(s.instances).map(([state, n]) => <><dt>{state}</dt><dd class="number">{figure(n)}</dd></>)}</dl>
          </Card>
          <Card title="Last change of the configuration">
            {s.last_reload
              ? <><p><Result of={s.last_reload.result} /> <Time at={s.last_reload.at} /> <span class="dim">{s.last_reload.operation ?? s.last_reload.trigger}</span></p><Diagnostics of={s.last_reload.diagnostics} /></>
              : <p class="dim">There was none.</p>}
          </Card>
        </div>
      )}
      <Card title="Providers">
        <Failure error={providers.error} />
        <div class="columns">
          {providers.value?.data.filter((p) => p.state !== "not_configured").map((p) => (
            <div key={p.id}>
              <strong>{p.id}</strong> <State of={p} /> {p.active && <Badge kind="plain">active</Badge>}
              {p.reason && <div class="dim">{p.reason}</div>}
              <dl>{Object.entries(p.details ?? {}).map(([k, v]) => <><dt>{k}</dt><dd>{v}</dd></>)}</dl>
            </div>
          ))}
        </div>
      </Card>
      <Card title="Over time" actions={<Choice label="Window" value={minutes} set={setMinutes} options={[["5", "5 minutes"], ["15", "15 minutes"], ["60", "an hour"]]} />}>
        <Failure error={history.error} />
        {history.value && <Charts of={history.value} />}
      </Card>
    </>
  );
}

export function Result({ of }: { of: string }) {
  return <Badge kind={of === "applied" || of === "would_apply" ? "good" : of === "refused" ? "bad" : "plain"}>{of.replace("_", " ")}</Badge>;
}

export function State({ of }: { of: Provider }) {
  return (
    <>
      <Badge kind={of.healthy ? "good" : of.state === "not_configured" ? "plain" : "bad"}>{of.state.replace("_", " ")}</Badge>
      {of.circuit.state !== "closed" && <> <Badge kind="warn">circuit {of.circuit.state.replace("_", " ")}</Badge></>}
    </>
  );
}

const charts: { title: string; take: (s: Series) => boolean; name: (s: Series) => string }[] = [
  { title: "Requests per second, by code", take: (s) => s.name === "requests", name: (s) => s.label },
  { title: "Latency of requests, seconds", take: (s) => s.name.startsWith("latency_"), name: (s) => s.name.slice(8) },
  { title: "Executions per second, by provider", take: (s) => s.name === "executions", name: (s) => s.label || "all" },
  { title: "Instances, by state", take: (s) => s.name === "instances", name: (s) => s.label },
  { title: "Ready in the pool, by provider", take: (s) => s.name === "pool", name: (s) => s.label },
  { title: "Requests that wait", take: (s) => s.name === "waiting", name: () => "waiting" },
  { title: "Cost per step", take: (s) => s.name === "cost", name: () => "cost" },
  { title: "Fail-overs per second", take: (s) => s.name === "failovers", name: () => "fail-overs" },
];

function Charts({ of }: { of: History }) {
  return <div class="columns">{charts.map((c) => <Chart key={c.title} title={c.title} history={of} lines={of.series.filter(c.take).map((s) => ({ label: c.name(s), points: s.points }))} />)}</div>;
}

function Chart({ title, history, lines }: { title: string; history: History; lines: { label: string; points: (number | null)[] }[] }) {
  const into = useRef<HTMLDivElement>(null);
  const chart = useRef<{ show: (t: number[], l: typeof lines) => void; end: () => void }>(undefined);
  const last = lines.map((l) => `${l.label} ${(l.points.findLast((p) => p !== null) ?? "–").toLocaleString("en")}`).join(", ");
  const times = () => {
    const from = Date.parse(history.from) / 1000;
    return (lines[0]?.points ?? []).map((_, i) => from + i * history.step_seconds);
  };
  const now = useRef<() => void>(() => {});
  now.current = () => { if (lines.length) chart.current?.show(times(), lines); };
  useEffect(() => {
    let over = false;
    void import("./chart").then(({ draw }) => {
      if (over || !into.current) return;
      chart.current = draw(into.current, 170);
      now.current();
    });
    return () => { over = true; chart.current?.end(); };
  }, []);
  useEffect(() => now.current(), [history]);
  return (
    <div class="chart">
      <h3>{title}</h3>
      {lines.length === 0 && <p class="dim">Nothing yet.</p>}
      <div ref={into} role="img" aria-label={`${title}. Last: ${last || "nothing"}.`} hidden={lines.length === 0} />
    </div>
  );
}
