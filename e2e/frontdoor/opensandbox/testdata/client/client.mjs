// Uses a sandbox as a program does that was written for OpenSandbox, by its published SDK.
// usage: node client.mjs DOMAIN KEY MODE; MODE is direct, proxy or keyless: the next line of
// the SDK keeps the key off the ports of sandboxes.
import assert from "node:assert/strict";
import { WebSocket } from "undici"; // of the SDK; that of a browser sets no headers
import { ConnectionConfig, Sandbox, SandboxManager } from "@alibaba-group/opensandbox";

const [domain, apiKey, mode] = process.argv.slice(2);

if (mode === "keyless") {
  const real = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const request = new Request(input, init);
    if (request.url.includes("/proxy/")) request.headers.delete("OPEN-SANDBOX-API-KEY");
    return real(request);
  };
}

const connectionConfig = new ConnectionConfig({ domain, apiKey, useServerProxy: mode === "proxy", requestTimeoutSeconds: 240 }); // for a slow machine
const texts = (list) => list.map((m) => m.text);

const sandbox = await Sandbox.create({ connectionConfig, image: "python:3.12", timeoutSeconds: 600, readyTimeoutSeconds: 240, env: { GREETING: "moin" }, metadata: { app: "e2e-" + mode } });
try {
  // The lifecycle.
  const info = await sandbox.getInfo();
  assert.equal(info.id, sandbox.id);
  assert.equal(info.status.state, "Running");
  assert.deepEqual(info.entrypoint, ["tail", "-f", "/dev/null"]);
  assert.deepEqual(info.metadata, { app: "e2e-" + mode });
  assert.ok(Math.abs(info.expiresAt - info.createdAt - 600_000) < 1000);
  assert.ok(await sandbox.isHealthy());

  // Commands.
  let e = await sandbox.commands.run("echo Hello; echo; echo err >&2; printf $GREETING");
  assert.deepEqual(texts(e.logs.stdout), ["Hello", "\n", "moin"]);
  assert.deepEqual(texts(e.logs.stderr), ["err"]);
  assert.equal(e.exitCode, 0);
  assert.equal(e.error, undefined);
  e = await sandbox.commands.run("exit 7");
  assert.equal(e.exitCode, 7);
  assert.equal(e.complete, undefined);
  e = await sandbox.commands.run("sleep 60", { timeoutSeconds: 1 });
  assert.notEqual(e.exitCode, 0);
  e = await sandbox.commands.run("pwd; echo $X", { workingDirectory: "/tmp", envs: { X: "y" } });
  assert.deepEqual(texts(e.logs.stdout), ["/tmp", "y"]);
  e = await sandbox.commands.run("echo one; echo two >&2; sleep 0.2; echo three", { background: true });
  let state;
  do state = await sandbox.commands.getCommandStatus(e.id); while (state.running);
  assert.equal(state.exitCode, 0);
  const first = await sandbox.commands.getBackgroundCommandLogs(e.id);
  assert.equal(first.content, "one\ntwo\nthree\n");
  assert.equal((await sandbox.commands.getBackgroundCommandLogs(e.id, first.cursor)).content, "");
  e = await sandbox.commands.run("sleep 600", { background: true });
  await sandbox.commands.interrupt(e.id);
  do state = await sandbox.commands.getCommandStatus(e.id); while (state.running);
  assert.notEqual(state.exitCode, 0);
  await assert.rejects(sandbox.commands.getCommandStatus("nonsense"));

  // Many lines, complete and in order.
  e = await sandbox.commands.run("seq 1 5000");
  assert.deepEqual(texts(e.logs.stdout), Array.from({ length: 5000 }, (_, i) => String(i + 1)));

  // Files.
  const text = "line one\nline two ✓\n";
  await sandbox.files.createDirectories([{ path: "/tmp/d/deep", mode: 755 }]);
  await sandbox.files.writeFiles([{ path: "/tmp/d/deep/x.txt", data: text, mode: 640 }, { path: "/tmp/d/y.bin", data: new Uint8Array([0, 255, 1]) }]);
  assert.equal(await sandbox.files.readFile("/tmp/d/deep/x.txt"), text);
  assert.deepEqual([...(await sandbox.files.readBytes("/tmp/d/y.bin"))], [0, 255, 1]);
  assert.deepEqual([...(await sandbox.files.readBytes("/tmp/d/y.bin", { range: "bytes=1-2" }))], [255, 1]);
  const infos = await sandbox.files.getFileInfo(["/tmp/d/deep/x.txt"]);
  assert.equal(infos["/tmp/d/deep/x.txt"].mode, 640);
  assert.equal(infos["/tmp/d/deep/x.txt"].size, Buffer.byteLength(text));
  assert.deepEqual((await sandbox.files.search({ path: "/tmp/d", pattern: "*.txt" })).map((f) => f.path), ["/tmp/d/deep/x.txt"]);
  await sandbox.files.replaceContents([{ path: "/tmp/d/deep/x.txt", oldContent: "one", newContent: "1" }]);
  await sandbox.files.moveFiles([{ src: "/tmp/d/deep/x.txt", dest: "/tmp/d/moved/z.txt" }]);
  assert.equal(await sandbox.files.readFile("/tmp/d/moved/z.txt"), text.replace("one", "1"));
  await assert.rejects(sandbox.files.getFileInfo(["/tmp/d/deep/x.txt"]), (error) => error.statusCode === 404 || error.error.code === "SB013");
  await sandbox.files.deleteFiles(["/tmp/d/y.bin", "/tmp/never"]);
  await sandbox.files.deleteDirectories(["/tmp/d"]);

  // Code, by the calls that the code interpreter makes.
  const endpoint = await sandbox.getEndpoint(44772);
  const execd = (method, path, body) => fetch("http://" + endpoint.endpoint + path, {
    method, headers: { "Content-Type": "application/json", ...endpoint.headers }, body: body && JSON.stringify(body),
  });
  // A client at a terminal. Its binary frames begin with what they are: 1 is output, 3 a replay with the offset of its first byte.
  const terminal = (id, query) => new Promise((seated, failed) => {
    const socket = new WebSocket("ws://" + endpoint.endpoint + "/pty/" + id + "/ws" + query, { headers: endpoint.headers });
    socket.binaryType = "arraybuffer";
    const shown = [], said = [];
    const t = { offset: 0, send: (text) => socket.send(text), type: (text) => socket.send(Buffer.from("\0" + text)) };
    let changed = () => {};
    const until = async (found) => {
      for (let got; ; await new Promise((resolve) => { changed = resolve; })) if ((got = found()) || socket.readyState === WebSocket.CLOSED) return got;
    };
    t.sees = async (text) => assert.ok(await until(() => Buffer.concat(shown).includes(text)), text + " in " + Buffer.concat(shown));
    t.hears = async (type) => { const got = await until(() => said.find((frame) => frame.type === type)); assert.ok(got, type); return got; };
    t.closed = new Promise((resolve) => socket.addEventListener("close", (event) => { resolve([event.code, event.reason]); changed(); failed(new Error("closed: " + event.code)); }));
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") {
        said.push(JSON.parse(data));
        if (said.at(-1).type === "connected") seated(t);
      } else {
        const frame = Buffer.from(data);
        assert.ok([1, 3].includes(frame[0]));
        if (frame[0] === 3) t.offset = Number(frame.readBigInt64BE(1));
        shown.push(frame.subarray(frame[0] === 3 ? 9 : 1));
        t.offset += shown.at(-1).length;
      }
      changed();
    });
  });
  const events = async (answer) => (await answer.text()).split("\n\n").filter(Boolean).map((line) => JSON.parse(line));
  const context = await (await execd("POST", "/code/context", { language: "python" })).json();
  let cell = await events(await execd("POST", "/code", { code: "x = 20\nprint('hi')", context }));
  assert.deepEqual([cell[0].type, cell.at(-1).type], ["init", "execution_complete"]);
  assert.equal(cell.filter((e) => e.type === "stdout").map((e) => e.text).join(""), "hi\n");
  assert.ok(cell.every((e) => Number.isInteger(e.timestamp) && e.timestamp > 0));
  cell = await events(await execd("POST", "/code", { code: "x + 22", context }));
  assert.equal(cell.find((e) => e.type === "result").results["text/plain"], "42");
  assert.equal(cell.find((e) => e.type === "result").results.text, "42");
  cell = await events(await execd("POST", "/code", { code: "nope", context }));
  assert.equal(cell.at(-1).error.ename, "NameError", JSON.stringify(cell));
  assert.ok(!cell.some((e) => e.type === "execution_complete"));
  assert.equal((await execd("DELETE", "/code?id=nonsense")).status, 404);
  await events(await execd("POST", "/code", { code: "1", context: { language: "python" } })); // makes the default context
  const usual = (await (await execd("GET", "/code/contexts?language=python")).json()).find((c) => c.id !== context.id);
  const endless = await execd("POST", "/code", { code: "while True: pass", context: { language: "python" } }); // its init has come
  assert.equal((await execd("DELETE", "/code?id=" + usual.id)).status, 200);
  assert.equal((await events(endless)).at(-1).error.ename, "KeyboardInterrupt");
  assert.equal((await execd("POST", "/code/context", { language: "cobol" })).status, 400);
  assert.equal((await execd("DELETE", "/code/contexts/" + context.id)).status, 200);
  assert.equal((await execd("GET", "/code/contexts/" + context.id)).status, 404);

  // A server in the sandbox.
  e = await sandbox.commands.run("cd /tmp && echo served > page && exec python3 -m http.server 8000", { background: true });
  const port = await sandbox.getEndpoint(8000);
  let page;
  for (let i = 0; i < 300 && !page?.ok; i++) {
    page = await fetch("http://" + port.endpoint + "/page", { headers: port.headers });
    if (!page.ok) await new Promise((done) => setTimeout(done, 100));
  }
  assert.equal(await page.text(), "served\n");
  assert.equal((await fetch("http://" + port.endpoint + "/page")).status, 401);

  // What clients ask for as a matter of course.
  assert.equal((await sandbox.getEgressPolicy()).defaultAction, process.env.NETWORK ?? "deny");
  const renewed = await sandbox.renew(900);
  assert.ok(renewed.expiresAt - Date.now() > 850_000);
  const manager = SandboxManager.create({ connectionConfig });
  const list = await manager.listSandboxInfos({ metadata: { app: "e2e-" + mode } });
  assert.deepEqual(list.items.map((s) => s.id), [sandbox.id]);
  await assert.rejects(Sandbox.create({ connectionConfig, image: "unknown:1", timeoutSeconds: 600 }), (error) => error.error.code === "SB010");
  await assert.rejects(Sandbox.create({ connectionConfig, image: "python:3.12", timeoutSeconds: 600, volumes: [{ name: "v", mountPath: "/v", host: { path: "/" } }] }),
    (error) => error.error.code === "SB010" && /volumes/.test(error.error.message));

  // What not every provider has: it works, or is refused with a code.
  const optional = async (name, use) => {
    try {
      await use();
      console.log(name, "works");
    } catch (error) {
      if (error.error?.code !== "SB015") throw error;
      console.log(name, "refused");
    }
  };
  await optional("sessions", async () => {
    const session = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
    await sandbox.commands.runInSession(session, "export A=5; cd /");
    const run = await sandbox.commands.runInSession(session, "echo $A; pwd; false");
    assert.deepEqual(texts(run.logs.stdout), ["5", "/"]);
    assert.equal(run.exitCode, 1);
    for (const command of ["pwd # where", "# nothing\npwd", "pwd \\\n"]) {
      assert.deepEqual(texts((await sandbox.commands.runInSession(session, command, { workingDirectory: "/tmp" })).logs.stdout), ["/tmp"]);
    }
    await sandbox.commands.deleteSession(session);
  });
  await optional("terminals", async () => { // by the calls that the next line of the SDK makes
    const made = await execd("POST", "/pty", { cwd: "/tmp" });
    if (made.status === 501) throw { error: await made.json() };
    assert.equal(made.status, 201);
    const { session_id: id } = await made.json();
    const first = await terminal(id, "?since=0");
    first.type("pwd; stty size; X=kept; echo re\"ady\"\n");
    await first.sees("/tmp\r\n24 80\r\nready\r\n");
    first.send(JSON.stringify({ type: "resize", cols: 100, rows: 50 }));
    first.send(JSON.stringify({ type: "ping" }));
    await first.hears("pong");
    const status = await (await execd("GET", "/pty/" + id)).json();
    assert.ok(status.running && status.output_offset >= first.offset);
    // Another client has it now, which gets what it has missed, and the same shell.
    const second = await terminal(id, "?takeover=1&since=0");
    assert.deepEqual(await first.closed, [4001, "TAKEN_OVER"]);
    await second.sees("ready\r\n");
    second.type("echo $X $(stty size)\n");
    await second.sees("kept 50 100\r\n");
    second.type("exit 7\n");
    assert.equal((await second.hears("exit")).exit_code, 7);
    assert.deepEqual(await second.closed, [1000, "process exited"]);
    // One that is deleted is gone.
    const other = (await (await execd("POST", "/pty", { command: "exec sleep 600" })).json()).session_id;
    assert.equal((await execd("DELETE", "/pty/" + other)).status, 200);
    assert.equal((await execd("GET", "/pty/" + other)).status, 404);
  });
  await optional("metrics", async () => assert.ok((await sandbox.getMetrics()).memoryTotalMiB > 0));
  await optional("pause", async () => {
    await sandbox.pause();
    assert.equal((await sandbox.getInfo()).status.state, "Paused");
    const resumed = await sandbox.resume();
    assert.equal((await resumed.commands.run("echo back")).logs.stdout[0].text, "back");
  });
} finally {
  await sandbox.kill();
}
await assert.rejects(sandbox.getInfo(), (error) => error.error.code === "SB013");
await sandbox.close();
console.log("done");
