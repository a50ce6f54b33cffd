// The admin page: sign-in, the frame, and which view is shown.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Caller, admin } from "./api";
import type { Status } from "./types";
import { Failure, TextField, useTask } from "./ui";
import { Overview } from "./overview";
import { Providers } from "./providers";
import { Tenants } from "./tenants";
import { Instances } from "./instances";
import { Audit } from "./audit";
import { Configuration } from "./configuration";
import { Try } from "./try";

const views = [
  { path: "/admin", name: "Overview", view: Overview },
  { path: "/admin/sandbox-settings", name: "Providers", view: Providers },
  { path: "/admin/tenants", name: "Tenants", view: Tenants },
  { path: "/admin/instances", name: "Instances", view: Instances },
  { path: "/admin/audit", name: "Audit log", view: Audit },
  { path: "/admin/configuration", name: "Configuration", view: Configuration },
  { path: "/admin/try", name: "Try it", view: Try },
];

function Page() {
  const [caller, setCaller] = useState<Caller>();
  const [ended, setEnded] = useState("");
  const signOut = (why = "") => { setCaller(undefined); setEnded(why); };
  if (!caller) return <SignIn ended={ended} signedIn={(c) => { c.onRefused = () => setCaller((now) => { if (now === c) setEnded("The token is no administrator's any more."); return now === c ? undefined : now; }); setCaller(c); }} />;
  return <Frame caller={caller} signOut={() => signOut()} />;
}

function SignIn({ signedIn, ended }: { signedIn: (c: Caller) => void; ended: string }) {
  const [token, setToken] = useState("");
  const task = useTask();
  const submit = (e: Event) => {
    e.preventDefault();
    void task.run(async () => {
      const caller = new Caller(token.trim());
      await caller.get<{ data: Status }>(admin("status"));
      setToken("");
      signedIn(caller);
    });
  };
  return (
    <main class="signin">
      <section class="card">
        <h1>Sandbox broker</h1>
        {ended && <p role="status">{ended}</p>}
        <form onSubmit={submit}>
          <TextField label="Token of an administrator" type="password" value={token} set={setToken} required autofocus
            hint="One of those whose sum stands in the admin block of sandbox.hcl. It stays in the memory of this page: who reloads the page signs in again." />
          <Failure error={task.error} />
          <footer><button class="primary" disabled={task.busy || !token.trim()}>Sign in</button></footer>
        </form>
        <p><a href="/docs">The API, to read and to try</a></p>
      </section>
    </main>
  );
}

function Frame({ caller, signOut }: { caller: Caller; signOut: () => void }) {
  const [path, setPath] = useState(location.pathname.replace(/\/$/, "") || "/admin");
  useEffect(() => {
    const moved = () => setPath(location.pathname.replace(/\/$/, ""));
    addEventListener("popstate", moved);
    return () => removeEventListener("popstate", moved);
  }, []);
  const go = (e: MouseEvent, to: string) => {
    if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
    e.preventDefault();
    history.pushState(null, "", to);
    setPath(to);
    document.getElementById("main")?.focus();
  };
  const now = views.find((v) => v.path === path) ?? views[0]!;
  useEffect(() => { document.title = `${now.name} · Sandbox broker`; }, [now]);
  return (
    <>
      <a class="skip" href="#main">To the content</a>
      <header class="top">
        <strong>Sandbox broker</strong>
        <nav aria-label="Views">
          {views.map((v) => <a href={v.path} aria-current={v === now ? "page" : undefined} onClick={(e) => go(e, v.path)}>{v.name}</a>)}
          <a href="/docs">API</a>
        </nav>
        <button type="button" onClick={signOut}>Sign out</button>
      </header>
      <main id="main" tabIndex={-1}><h1>{now.name}</h1><now.view caller={caller} /></main>
    </>
  );
}

render(<Page />, document.getElementById("page")!);
