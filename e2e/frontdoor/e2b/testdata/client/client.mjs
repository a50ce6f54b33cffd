// Uses sandboxes as a program does that was written for E2B, by its published SDKs.
// usage: node client.mjs URL KEY SDK BROKERS; SDK is e2b or e2b-before, BROKERS one or several.
// Prints what works and what is refused, a feature a line, and exits with 0 if there is nothing
// else.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

const [url, apiKey, sdk, brokers] = process.argv.slice(2);
const { Sandbox, CommandExitError, NotFoundError, TimeoutError } = await import(sdk);
const { Sandbox: Interpreter } = await import("@e2b/code-interpreter");
const options = { apiKey, apiUrl: url, sandboxUrl: url, requestTimeoutMs: 240_000 }; // for a slow machine

// A feature works, or is refused by the server in so many words.
const feature = async (name, use) => {
  try {
    await use();
    console.log("works", name);
  } catch (error) {
    // Of the code interpreter's refusals the SDK shows the status alone.
    if (!/SB015|^501 /.test(error.message)) throw new Error(name, { cause: error });
    console.log("refused", name);
  }
};
const until = async (done) => {
  for (let i = 0; i < 600 && !(await done()); i++) await new Promise((next) => setTimeout(next, 100));
};

const app = randomUUID();
const sandbox = await Sandbox.create({ ...options, timeoutMs: 600_000, metadata: { app, "a/b": "c&d=e" }, envs: { GREETING: "moin" } });
try {
  await feature("create, get, list", async () => {
    assert.match(sandbox.sandboxId, /^[a-z0-9]+$/);
    assert.ok(await sandbox.isRunning());
    const info = await sandbox.getInfo();
    assert.equal(info.templateId, "base");
    assert.equal(info.state, "running");
    assert.deepEqual(info.metadata, { app, "a/b": "c&d=e" });
    assert.ok(Math.abs(info.endAt - info.startedAt - 600_000) < 2000);
    const list = Sandbox.list({ ...options, query: { metadata: { app, "a/b": "c&d=e" }, state: ["running"] } });
    assert.deepEqual((await list.nextItems()).map((s) => s.sandboxId), [sandbox.sandboxId]);
    assert.equal(list.hasNext, false);
    assert.deepEqual(await Sandbox.list({ ...options, query: { metadata: { app: "another" } } }).nextItems(), []);
    const more = await Promise.all([1, 2].map(() => Sandbox.create({ ...options, timeoutMs: 600_000, metadata: { app } })));
    const pages = Sandbox.list({ ...options, query: { metadata: { app } }, limit: 1 });
    const seen = [];
    while (pages.hasNext) seen.push(...(await pages.nextItems()).map((s) => s.sandboxId));
    assert.equal(seen.length, 3);
    assert.equal(new Set(seen).size, 3);
    for (const one of more) await one.kill();
    await assert.rejects(Sandbox.create("nonsense", options), /404.*nonsense/s);
    await assert.rejects(Sandbox.create({ ...options, network: { denyOut: ["1.2.3.4"] } }), /network/);
    await assert.rejects(Sandbox.create({ ...options, apiKey: apiKey + "0" }), /SB011|API key/i);
  });
  await feature("timeouts", async () => {
    await sandbox.setTimeout(900_000);
    assert.ok((await sandbox.getInfo()).endAt - Date.now() > 850_000);
    await sandbox.setTimeout(300_000);
    assert.ok((await sandbox.getInfo()).endAt - Date.now() < 301_000);
    await Sandbox.connect(sandbox.sandboxId, { ...options, timeoutMs: 60_000 });
    assert.ok((await sandbox.getInfo()).endAt - Date.now() > 100_000, "connect never shortens");
    await sandbox.setTimeout(900_000);
  });
  await feature("commands", async () => {
    const run = await sandbox.commands.run('echo "hi ✓"; pwd; echo $GREETING $HOME $X; echo err >&2', { envs: { X: "y" } });
    assert.equal(run.stdout, "hi ✓\n/home/user\nmoin /home/user y\n");
    assert.equal(run.stderr, "err\n");
    assert.equal((await sandbox.commands.run("pwd", { cwd: "/tmp" })).stdout, "/tmp\n");
    await assert.rejects(sandbox.commands.run("echo out; exit 7"), (error) => error instanceof CommandExitError && error.exitCode === 7 && error.stdout === "out\n");
    await assert.rejects(sandbox.commands.run("sleep 60", { timeoutMs: 1000 }), TimeoutError);
    await assert.rejects(sandbox.commands.run("true", { cwd: "/nowhere" }), /SB010/);
    await assert.rejects(sandbox.commands.run("true", { user: "root" }), /SB011/);
    const many = await sandbox.commands.run("seq 1 20000");
    assert.equal(many.stdout, Array.from({ length: 20000 }, (_, i) => i + 1 + "\n").join(""));
    const pieces = [];
    await sandbox.commands.run("echo 1; sleep 0.2; echo 2", { onStdout: (text) => void pieces.push(text) });
    assert.equal(pieces.join(""), "1\n2\n");
  });
  await feature("commands in the background", async () => {
    const served = await sandbox.commands.run("read line; echo got $line; sleep 1000", { background: true, stdin: true, timeoutMs: 0 });
    const listed = await sandbox.commands.list();
    assert.deepEqual(listed.filter((p) => p.pid === served.pid).map((p) => [p.cmd, p.args.at(-1), p.cwd]), [["/bin/bash", "read line; echo got $line; sleep 1000", "/home/user"]]);
    await served.disconnect();
    const again = await sandbox.commands.connect(served.pid, { timeoutMs: 0 });
    await sandbox.commands.sendStdin(served.pid, "this\n");
    await until(() => again.stdout === "got this\n");
    assert.equal(again.stdout, "got this\n");
    assert.equal(await sandbox.commands.kill(served.pid), true);
    await assert.rejects(again.wait(), CommandExitError);
    assert.equal(await sandbox.commands.kill(served.pid), false);
    assert.ok(!(await sandbox.commands.list()).some((p) => p.pid === served.pid));
    const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
    await sandbox.commands.sendStdin(cat.pid, "to the end");
    await sandbox.commands.closeStdin(cat.pid);
    assert.equal((await cat.wait()).stdout, "to the end");
    await assert.rejects(sandbox.commands.connect(1), NotFoundError);
  });
  await feature("files", async () => {
    const text = "line one\nline two ✓\n";
    assert.equal((await sandbox.files.write("test.txt", text)).path, "/home/user/test.txt");
    assert.equal(await sandbox.files.read("test.txt"), text);
    assert.equal(await sandbox.files.read("/home/user/test.txt"), text);
    assert.equal((await sandbox.commands.run("cat test.txt")).stdout, text);
    await sandbox.files.write("empty", "");
    assert.equal(await sandbox.files.read("empty"), "");
    await sandbox.files.write([{ path: "d/deep/x.txt", data: "x" }, { path: "/tmp/y.bin", data: new Uint8Array([0, 255, 1]).buffer }]);
    assert.deepEqual([...(await sandbox.files.read("/tmp/y.bin", { format: "bytes" }))], [0, 255, 1]);
    assert.deepEqual((await sandbox.files.list("d")).map((f) => [f.name, f.type, f.path]), [["deep", "dir", "/home/user/d/deep"]]);
    assert.deepEqual((await sandbox.files.list("d", { depth: 2 })).map((f) => f.name), ["deep", "x.txt"]);
    assert.equal(await sandbox.files.makeDir("d/new"), true);
    assert.equal(await sandbox.files.makeDir("d/new"), false);
    assert.equal((await sandbox.files.rename("d/deep/x.txt", "d/new/z.txt")).path, "/home/user/d/new/z.txt");
    const info = await sandbox.files.getInfo("d/new/z.txt");
    assert.deepEqual([info.size, info.mode, info.permissions], [1, 0o644, "-rw-r--r--"]);
    assert.equal(await sandbox.files.exists("d/deep/x.txt"), false);
    await sandbox.files.remove("d");
    await sandbox.files.remove("d");
    assert.equal(await sandbox.files.exists("d"), false);
    await assert.rejects(sandbox.files.read("nowhere"), NotFoundError);
    await assert.rejects(sandbox.files.list("test.txt"), /not a directory/);
  });
  await feature("watches of files", async () => {
    await sandbox.files.makeDir("watched");
    const seen = [];
    const watch = await sandbox.files.watchDir("watched", (event) => void seen.push(event));
    await sandbox.files.write("watched/new.txt", "x");
    await until(() => seen.some((event) => event.name === "new.txt"));
    assert.ok(seen.some((event) => event.name === "new.txt" && ["create", "rename", "write"].includes(event.type)), JSON.stringify(seen));
    await watch.stop();
    await assert.rejects(sandbox.files.watchDir("nowhere", () => {}), NotFoundError);
  });
  await feature("terminals", async () => {
    let shown = "";
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (data) => void (shown += new TextDecoder().decode(data)) });
    // Before it asks, readline sets the size of the terminal to what it has just read: one that comes in between is lost.
    await until(() => /[$#] (\x1b\S*)?$/.test(shown));
    await sandbox.pty.resize(terminal.pid, { cols: 111, rows: 22 });
    await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size; echo $((40 + 2))\n"));
    await until(() => shown.includes("\n42"));
    assert.match(shown, /22 111/);
    assert.equal(await sandbox.pty.kill(terminal.pid), true);
    await assert.rejects(terminal.wait(), CommandExitError);
  });
  // Such an address names no sandbox, and the broker that is asked looks only for its own.
  if (brokers === "one") await feature("signed addresses of files", async () => {
    const address = new URL(await sandbox.uploadUrl("signed.txt"));
    address.pathname = new URL(url).pathname + "/files"; // the SDK puts it at the root
    const form = new FormData();
    form.append("file", new Blob(["by a signature"]), "signed.txt");
    assert.equal((await fetch(address, { method: "POST", body: form })).status, 200);
    const down = new URL(await sandbox.downloadUrl("signed.txt"));
    down.pathname = address.pathname;
    assert.equal(await (await fetch(down)).text(), "by a signature");
    down.searchParams.set("path", "test.txt");
    assert.equal((await fetch(down)).status, 401);
  });
  await feature("ports, by fields of the header", async () => {
    await sandbox.commands.run("mkdir site && echo moin > site/greeting && cd site && exec python3 -m http.server 8765 --bind 127.0.0.1", { background: true, timeoutMs: 0 });
    const ask = (port) => fetch(url + "/greeting?x", { headers: { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": port } });
    let answer;
    await until(async () => (answer = await ask("8765")).status !== 502);
    if (answer.status !== 200) throw new Error(await answer.text());
    assert.equal(await answer.text(), "moin\n");
    const { code, sandboxId, port } = await (await ask("8766")).json();
    assert.deepEqual([code, sandboxId, port], [502, sandbox.sandboxId, 8766]);
  });
  await feature("metrics", async () => assert.ok((await sandbox.getMetrics())[0].memTotal > 0));
  await feature("pause and resume", async () => {
    assert.equal(await (sandbox.pause ?? sandbox.betaPause).call(sandbox), true);
    assert.equal((await sandbox.getInfo()).state, "paused");
    assert.equal(await sandbox.isRunning(), false);
    assert.equal(await (sandbox.pause ?? sandbox.betaPause).call(sandbox), false);
    const resumed = await Sandbox.connect(sandbox.sandboxId, { ...options, timeoutMs: 600_000 });
    assert.equal((await resumed.commands.run("cat test.txt | head -1")).stdout, "line one\n");
  });
  await feature("snapshots, and sandboxes that go on from them", async () => {
    await sandbox.files.write("kept.txt", "as it was");
    const { snapshotId, names } = await sandbox.createSnapshot();
    assert.deepEqual(names, []);
    await sandbox.files.write("kept.txt", "changed");
    const next = (await sandbox.createSnapshot()).snapshotId;
    const pages = sandbox.listSnapshots({ limit: 1 });
    const seen = [];
    while (pages.hasNext) seen.push(...(await pages.nextItems()).map((s) => s.snapshotId));
    assert.deepEqual(seen, [next, snapshotId]);
    const copy = await Sandbox.create(snapshotId, { ...options, timeoutMs: 600_000, metadata: { app: "copy" } });
    assert.equal(await copy.files.read("kept.txt"), "as it was");
    assert.equal((await copy.getInfo()).templateId, snapshotId);
    assert.equal((await copy.commands.run("echo $GREETING; cat kept.txt")).stdout, "moin\nas it was");
    await copy.kill();
    assert.equal(await sandbox.files.read("kept.txt"), "changed");
    assert.equal(await Sandbox.deleteSnapshot(snapshotId, options), true);
    assert.equal(await Sandbox.deleteSnapshot(snapshotId, options), false);
    await assert.rejects(Sandbox.create(snapshotId, options), /404.*snap-/s);
    assert.deepEqual((await Sandbox.listSnapshots({ ...options, sandboxId: sandbox.sandboxId }).nextItems()).map((s) => s.snapshotId), [next]);
    assert.equal(await Sandbox.deleteSnapshot(next, options), true);
    await assert.rejects(sandbox.createSnapshot({ name: "mine" }), /name/);
  });
  if (sandbox.fork) await feature("forks", async () => { // which the SDK before it has not
    await sandbox.files.write("forked.txt", "as it was");
    const forks = await sandbox.fork({ count: 2, timeoutMs: 600_000 });
    await sandbox.files.write("forked.txt", "changed");
    assert.equal(new Set(forks.map((one) => one.sandboxId)).size, 2);
    for (const one of forks) {
      assert.ok(one instanceof Sandbox);
      assert.equal((await one.commands.run("echo $GREETING; cat forked.txt")).stdout, "moin\nas it was");
      await one.files.write("forked.txt", "its own");
      await one.kill();
    }
    assert.equal(await sandbox.files.read("forked.txt"), "changed");
    assert.equal((await Sandbox.listSnapshots(options).nextItems()).length, 0);
  });
  await feature("networks, narrowed and shut", async () => {
    const shut = await Sandbox.create({ ...options, timeoutMs: 600_000, network: { denyOut: ["0.0.0.0/0"] } });
    assert.deepEqual((await shut.getInfo()).network.denyOut, ["0.0.0.0/0"]);
    await assert.rejects(shut.updateNetwork({}), /SB012/, "this tenant has no network");
    await shut.updateNetwork({ allowInternetAccess: false });
    assert.equal((await shut.getInfo()).allowInternetAccess, false);
    await assert.rejects(shut.updateNetwork({ allowOut: ["example.com"] }), /allowOut/);
    await shut.kill();
  });

  const interpreter = await Interpreter.create({ ...options, timeoutMs: 600_000 });
  try {
    await feature("code with state, results and errors", async () => {
      let run = await interpreter.runCode("x = 20\nprint('hi ✓')\nx + 22");
      assert.equal(run.text, "42");
      assert.equal(run.results[0].isMainResult, true);
      assert.equal(run.logs.stdout.join(""), "hi ✓\n");
      run = await interpreter.runCode("import os, sys; print(x, os.getcwd()); sys.stderr.write('e')");
      assert.equal(run.logs.stdout.join(""), "20 /home/user\n");
      assert.equal(run.logs.stderr.join(""), "e");
      run = await interpreter.runCode("nope");
      assert.equal(run.error.name, "NameError");
      assert.match(run.error.value, /nope/);
      assert.match(run.error.traceback, /Traceback/);
      run = await interpreter.runCode("'text'");
      assert.equal(run.text, "text");
      assert.equal((await interpreter.runCode("import os; print(os.environ['A'])", { envs: { A: "it's \"so\"" } })).logs.stdout.join(""), "it's \"so\"\n");
      await assert.rejects(interpreter.runCode("while True: pass", { timeoutMs: 2000 }), /time/i);
      assert.equal((await interpreter.runCode("1 + 1")).text, "2", "the code was interrupted");
    });
    await feature("code in JavaScript", async () => assert.equal((await interpreter.runCode("const a = 20; a + 22", { language: "js" })).text, "42"));
    await feature("code in bash", async () => assert.equal((await interpreter.runCode("echo hi", { language: "bash" })).logs.stdout.join(""), "hi\n"));
    await feature("contexts of code", async () => {
      const context = await interpreter.createCodeContext({ cwd: "/tmp", language: "python" });
      assert.equal(context.cwd, "/tmp");
      await interpreter.runCode("import os; y = os.getcwd()", { context });
      assert.equal((await interpreter.runCode("y", { context })).text, "/tmp");
      assert.ok((await interpreter.listCodeContexts()).some((one) => one.id === context.id));
      await interpreter.restartCodeContext(context);
      assert.equal((await interpreter.runCode("y", { context })).error.name, "NameError");
      await interpreter.removeCodeContext(context);
      await assert.rejects(interpreter.runCode("1", { context }), /SB013|not found/i);
    });
    await feature("R and Java", async () => {
      const run = await interpreter.runCode("1", { language: "r" });
      assert.equal(run.error, undefined);
    });
  } finally {
    await interpreter.kill();
  }
} finally {
  assert.equal(await sandbox.kill(), true);
}
assert.equal(await sandbox.kill(), false);
assert.equal(await sandbox.isRunning(), false);
await assert.rejects(sandbox.commands.run("true"));
process.exit(0); // the SDK waits for its own time limits
