// A form from a provider's schema. Its draft has the settings that were changed and no others;
// null is one that is removed, so that its default holds.
import { useId, useState } from "preact/hooks";
import type { Field, Origin, Settings } from "./types";
import { Check, Choice, Labelled, describedBy } from "./ui";

export interface FormState {
  schema: Record<string, Field>; shown: Settings; draft: Settings; errors: Record<string, string>; origins: Record<string, Origin>; readOnly: boolean;
}

export const inOrder = (schema: Record<string, Field>) => Object.entries(schema).sort(([, a], [, b]) => a.position - b.position);

interface FormProps { state: FormState; path: string; change: (name: string, value: unknown) => void }

/** Form shows the settings at a path ("config") and tells what was changed. */
export function Form({ state, path, change }: FormProps) {
  return <>{inOrder(state.schema).map(([name]) => <One key={name} name={name} {...{ state, path, change }} />)}</>;
}

function One({ state, path, change, name }: FormProps & { name: string }) {
  const value = name in state.draft ? state.draft[name] : state.shown[name];
  return <Setting name={name} field={state.schema[name]!} at={`${path}.${name}`} value={value} changed={name in state.draft}
    origin={state.origins[name]} errors={state.errors} readOnly={state.readOnly} set={(v) => change(name, v)} />;
}

/** Sections is Form with those at their defaults behind the others: there may be dozens. */
export function Sections(props: FormProps) {
  const { state, path } = props;
  const all = inOrder(state.schema).map(([name]) => name);
  const given = (name: string) => state.schema[name]!.required || (state.origins[name] ? state.origins[name].origin !== "default" : name in state.shown);
  const first = all.filter(given), rest = all.filter((name) => !given(name));
  const wrong = rest.some((name) => Object.keys(state.errors).some((at) => at === `${path}.${name}` || at.startsWith(`${path}.${name}.`) || at.startsWith(`${path}.${name}[`)));
  return (
    <>
      {first.map((name) => <One key={name} name={name} {...props} />)}
      {rest.length > 0 && (
        <details open={wrong || first.length === 0 || undefined}>
          <summary>{rest.length} more, at their defaults</summary>
          {rest.map((name) => <One key={name} name={name} {...props} />)}
        </details>
      )}
    </>
  );
}

interface SettingProps {
  name: string; field: Field; at: string; value: unknown; changed: boolean; origin?: Origin; errors: Record<string, string>; readOnly: boolean;
  set: (value: unknown) => void;
}

function Setting(props: SettingProps) {
  const { name, field, at, value, changed, origin, errors, readOnly, set } = props;
  const computed = origin && ["env", "file", "computed"].includes(origin.origin);
  const fixed = readOnly || field.file_only || !!computed;
  const hint = (
    <>
      {field.description}{" "}
      {field.file_only && <>Changed in the file only. </>}
      {computed && <>Comes from {origin.origin}{origin.name && <> <code>{origin.name}</code></>}: changed there. </>}
      <Bounds of={field} />
      {!fixed && !field.required && field.type !== "block" && (changed ? value !== null : origin && origin.origin !== "default") &&
        <button type="button" class="small plain" onClick={() => set(null)}>Use the default<span class="dim"> of {field.label}</span></button>}
      {changed && <span class="badge warn">changed</span>}
    </>
  );
  const label = <>{field.label} <code>{name}</code></>;
  const common = { label, hint, error: errors[at], at, field, fixed, set };
  if (field.type === "block") return <Blocks {...props} fixed={fixed} />;
  if (field.options?.length && field.type !== "list") {
    const options: [string, string][] = [["", field.default !== undefined ? `default: ${field.default}` : "–"], ...field.options.map((o): [string, string] => [o, o])];
    return <Choice label={label} hint={hint} error={errors[at]} disabled={fixed} value={value == null ? "" : String(value)} options={options} set={(v) => set(v === "" ? null : typed(field, v))} />;
  }
  if (field.type === "boolean") return <Check label={label} hint={hint} disabled={fixed} value={Boolean(value ?? field.default ?? false)} set={set} />;
  if (field.type === "list") return <Lines {...common} value={value} />;
  if (field.type === "map") return <Pairs {...common} value={value} />;
  return <Plain {...common} value={value} masked={origin?.masked ?? false} />;
}

function Bounds({ of }: { of: Field }) {
  const unit = of.type === "duration" ? " s" : "";
  const said: string[] = [];
  if (of.type === "duration") said.push("such as 30s or 5m");
  if (of.min !== undefined && of.max !== undefined) said.push(`${of.min} to ${of.max}${unit}`);
  else if (of.min !== undefined) said.push(`at least ${of.min}${unit}`);
  else if (of.max !== undefined) said.push(`at most ${of.max}${unit}`);
  return said.length ? <span class="dim">({said.join(", ")}) </span> : null;
}

function typed(field: Field, text: string): unknown {
  if ((field.type === "integer" || field.type === "number") && text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
  return text;
}

interface InputProps { label: preact.ComponentChildren; hint: preact.ComponentChildren; error?: string; field: Field; fixed: boolean; value: unknown; set: (v: unknown) => void }

// A secret is not put into the document, masked or not, but what is typed now.
function Plain({ label, hint, error, field, fixed, value, set, masked }: InputProps & { masked: boolean }) {
  const id = useId(), secret = field.secret || masked;
  const number = field.type === "integer" || field.type === "number";
  const old = secret && typeof value === "string" && value.startsWith("****");
  const empty = old ? `set (${value})` : field.placeholder ?? (field.default !== undefined ? `default: ${field.default}` : "");
  return (
    <Labelled id={id} label={label} hint={hint} error={error} required={field.required}>
      <input id={id} type={(secret ? "password" : number ? "number" : "text") as "text"} autocomplete={secret ? "new-password" : "off"} spellcheck={false}
        value={value == null || old ? "" : String(value)} placeholder={empty} disabled={fixed} aria-required={field.required}
        min={number ? field.min : undefined} max={number ? field.max : undefined} step={field.type === "integer" ? "1" : "any"}
        aria-invalid={error ? "true" : undefined} aria-describedby={describedBy(id, hint, error)}
        onInput={(e) => set(e.currentTarget.value === "" ? (secret ? undefined : null) : typed(field, e.currentTarget.value))} />
    </Labelled>
  );
}

function Lines({ label, hint, error, field, fixed, value, set }: InputProps) {
  const id = useId(), kind = field.items?.type ?? "string";
  const text = Array.isArray(value) ? value.join("\n") : "";
  const take = (t: string) => {
    const lines = t.split("\n");
    if (lines.at(-1) === "") lines.pop();
    return lines.length === 0 ? null : lines.map((l) => kind !== "string" && l.trim() !== "" && Number.isFinite(Number(l)) ? Number(l) : l);
  };
  return (
    <Labelled id={id} label={label} hint={<>One in a line. {hint}</>} error={error} required={field.required}>
      <textarea id={id} rows={Math.min(8, Math.max(2, text.split("\n").length + 1))} disabled={fixed} spellcheck={false} placeholder={field.placeholder}
        aria-invalid={error ? "true" : undefined} aria-describedby={describedBy(id, hint, error)} defaultValue={text}
        onInput={(e) => set(take(e.currentTarget.value))} />
    </Labelled>
  );
}

function Pairs({ label, hint, error, fixed, value, set }: InputProps) {
  const pairs = Object.entries((value ?? {}) as Record<string, unknown>);
  const put = (all: [string, unknown][]) => set(all.length ? Object.fromEntries(all) : null);
  const at = (i: number, pair: [string, unknown]) => put(pairs.map((p, j) => (i === j ? pair : p)));
  return (
    <fieldset disabled={fixed}>
      <legend>{label}</legend>
      <div class="hint">{hint}</div>
      {pairs.map(([k, v], i) => (
        <div class="pair" key={i}>
          <input aria-label={`Name ${i + 1}`} value={k} onChange={(e) => at(i, [e.currentTarget.value, v])} />
          <input aria-label={`Value of ${k || i + 1}`} value={String(v ?? "")} onInput={(e) => at(i, [k, e.currentTarget.value])} />
          <button type="button" class="small" aria-label={`Remove ${k || i + 1}`} onClick={() => put(pairs.filter((_, j) => j !== i))}>Remove</button>
        </div>
      ))}
      <button type="button" class="small" onClick={() => put([...pairs, ["", ""]])}>Add</button>
      {error && <div class="field-error" role="alert">{error}</div>}
    </fieldset>
  );
}

function Blocks({ name, field, at, value, errors, fixed, set }: SettingProps & { fixed: boolean }) {
  const [first] = useState(value);
  // A secret of which nothing new is typed stays what it was when the form began.
  const inner = (block: Settings, place: string, put: (b: Settings) => void, began?: Settings) => (
    <Form path={place} change={(n, v) => put(without({ ...block, [n]: v === undefined ? began?.[n] : v }))}
      state={{ schema: field.fields ?? {}, shown: block, draft: {}, errors, origins: masks(field.fields ?? {}, block), readOnly: fixed }} />
  );
  if (!field.repeated) {
    const block = value as Settings | null | undefined;
    return (
      <fieldset>
        <legend>{field.label} <code>{name}</code></legend>
        <div class="hint">{field.description}</div>
        {block ? inner(block, at, set, first as Settings | undefined) : <p class="dim">Not there.</p>}
        {!fixed && (block
          ? !field.required && <button type="button" class="small danger" onClick={() => set(null)}>Remove {field.label}</button>
          : <button type="button" class="small" onClick={() => set({})}>Add {field.label}</button>)}
        {errors[at] && <div class="field-error" role="alert">{errors[at]}</div>}
      </fieldset>
    );
  }
  const list = (value ?? []) as Settings[];
  return (
    <fieldset>
      <legend>{field.label} <code>{name}</code></legend>
      <div class="hint">{field.description}</div>
      {list.map((block, i) => (
        <fieldset key={i}>
          <legend>{field.label} {i + 1}</legend>
          {inner(block, `${at}[${i}]`, (b) => set(list.map((old, j) => (i === j ? b : old))), (first as Settings[] | undefined)?.[i])}
          {!fixed && <button type="button" class="small danger" onClick={() => set(list.filter((_, j) => j !== i))}>Remove {field.label} {i + 1}</button>}
        </fieldset>
      ))}
      {!fixed && <button type="button" class="small" onClick={() => set([...list, {}])}>Add {field.label}</button>}
      {errors[at] && <div class="field-error" role="alert">{errors[at]}</div>}
    </fieldset>
  );
}

// Within a block what was cleared is left out.
const without = (block: Settings): Settings => Object.fromEntries(Object.entries(block).filter(([, v]) => v !== null && v !== undefined));

const masks = (schema: Record<string, Field>, block: Settings): Record<string, Origin> =>
  Object.fromEntries(Object.entries(schema).map(([name]) => [name, { origin: "literal", masked: String(block[name] ?? "").startsWith("****") }]));

/** payload is what of a draft is sent: a block that stands once names what it has no more. */
export function payload(schema: Record<string, Field>, shown: Settings, draft: Settings): Settings {
  const sent: Settings = {};
  for (const [name, value] of Object.entries(draft)) {
    if (value === undefined) continue;
    const field = schema[name];
    const old = shown[name];
    if (field?.type === "block" && !field.repeated && value && old && typeof old === "object") {
      const gone = Object.keys(old).filter((k) => !(k in (value as Settings)));
      sent[name] = { ...(value as Settings), ...Object.fromEntries(gone.map((k) => [k, null])) };
      continue;
    }
    sent[name] = value;
  }
  return sent;
}
