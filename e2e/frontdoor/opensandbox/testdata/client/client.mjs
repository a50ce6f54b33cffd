// Uses a sandbox as a program does that was written for OpenSandbox, by its published SDK.
// usage: node client.mjs DOMAIN KEY MODE NETWORK; MODE is direct, proxy or keyless: the next
// line of the SDK keeps the key off the ports of sandboxes. NETWORK is allow or deny.
//
// It prints one line for each feature, with what became of it: it works, or is refused with
// the code for what a provider has not. Anything else ends it.
import assert from "node:assert/strict";
import { WebSocket } from "undici";
import { ConnectionConfig, Sandbox, SandboxManager } from "@alibaba-group/opensandbox";
import { createExecdClient } from "@alibaba-group/opensandbox/internal";

const [domain, apiKey, mode, network] = process.argv.slice(2);

let withheld = 0;
if (mode === "keyless") {
  const real = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const request = new Request(input, init);
    if (request.url.includes("/proxy/") && request.headers.has("OPEN-SANDBOX-API-KEY")) {
      request.headers.delete("OPEN-SANDBOX-API-KEY");
      withheld++;
    }
    return real(request);
  };
}

const connectionConfig = new ConnectionConfig({ domain, apiKey, useServerProxy: mode === "proxy", requestTimeoutSeconds: 240 }); // for a slow machine
const texts = (list) => list.map((m) => m.text);

// notServed reports whether a provider has no such thing.
const notServed = (error) => error?.error?.code === "SB015" || error?.code === "SB015";

const feature = async (name, use) => {
  try {
    await use();
    console.log("works  ", name);
  } catch (error) {
    if (!notServed(error)) throw new Error(name, { cause: error });
    console.log("refused", name);
  }
};

const sandbox = await Sandbox.create({ connectionConfig, image: "python:3.12", timeoutSeconds: 600, readyTimeoutSeconds: 240, env: { GREETING: "moin" }, metadata: { app: "e2e-" + mode } });
const endpoint = await sandbox.getEndpoint(44772);
// What the code interpreter is made of: this client, and the streams of the commands.
const execd = createExecdClient({ baseUrl: "http://" + endpoint.endpoint, headers: endpoint.headers, fetch: globalThis.fetch });
const called = async (call) => {
  const { data, error, response } = await call;
  if (error !== undefined || !response.ok) throw Object.assign(new Error(JSON.stringify(error)), { status: response.status, code: error?.code });
  return data;
};
const run = (body, handlers) => sandbox.commands.consumeExecutionStream(
  sandbox.commands.streamExecution({ pathname: "/code", body, fallbackErrorMessage: "Run code failed" }), handlers);
const refused = async (call, status) => assert.rejects(called(call), (error) => error.status === status && /^SB0/.test(error.code));
const text = (list) => texts(list).join("");
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
  // Before it asks, readline sets the size of the terminal to what it has just read: one that comes in between is lost.
  t.asksAfter = async (text) => assert.ok(await until(() => /[$#] $/.test(Buffer.concat(shown).toString().split(text)[1])), text + " and a prompt in " + Buffer.concat(shown));
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
const ended = async (id) => {
  let state;
  do state = await sandbox.commands.getCommandStatus(id); while (state.running);
  return state;
};

try {
  await feature("sandboxes: create, get, health", async () => {
    const info = await sandbox.getInfo();
    assert.equal(info.id, sandbox.id);
    assert.equal(info.status.state, "Running");
    assert.deepEqual(info.entrypoint, ["tail", "-f", "/dev/null"]);
    assert.deepEqual(info.metadata, { app: "e2e-" + mode });
    assert.ok(Math.abs(info.expiresAt - info.createdAt - 600_000) < 1000);
    assert.ok(await sandbox.isHealthy());
    for (const wrong of [{ image: "unknown:1" }, { image: "python:3.12", volumes: [{ name: "v", mountPath: "/v", host: { path: "/" } }] }]) {
      await assert.rejects(Sandbox.create({ connectionConfig, timeoutSeconds: 600, ...wrong }), (error) => error.error.code === "SB010" && /image|volumes/.test(error.error.message));
    }
  });
  await feature("sandboxes: list with filters, renew, metadata", async () => {
    const renewed = await sandbox.renew(900);
    assert.ok(renewed.expiresAt - Date.now() > 850_000);
    const manager = SandboxManager.create({ connectionConfig });
    const list = await manager.listSandboxInfos({ metadata: { app: "e2e-" + mode } });
    assert.deepEqual(list.items.map((s) => s.id), [sandbox.id]);
    const patched = await sandbox.patchMetadata({ app: null, run: "1" });
    assert.deepEqual(patched.metadata, { run: "1" });
    assert.equal((await manager.listSandboxInfos({ metadata: { app: "e2e-" + mode } })).items.length, 0);
    await assert.rejects(sandbox.patchMetadata({ "opensandbox.io/x": "1" }), (error) => error.error.code === "SB010");
  });

  await feature("commands: output as it comes, exit codes, directories, variables, time limits", async () => {
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
    e = await sandbox.commands.run("seq 1 5000");
    assert.deepEqual(texts(e.logs.stdout), Array.from({ length: 5000 }, (_, i) => String(i + 1)));
    const line = "grüße ✓ 日本語 😀 ";
    e = await sandbox.commands.run(`for i in $(seq 1 3000); do printf '${line}'; done`);
    assert.equal(text(e.logs.stdout), line.repeat(3000));
  });
  await feature("commands in the background: status, logs by cursor, interrupts", async () => {
    let e = await sandbox.commands.run("echo one; echo two >&2; sleep 0.2; echo three", { background: true });
    assert.equal((await ended(e.id)).exitCode, 0);
    const first = await sandbox.commands.getBackgroundCommandLogs(e.id);
    assert.equal(first.content, "one\ntwo\nthree\n");
    assert.equal((await sandbox.commands.getBackgroundCommandLogs(e.id, first.cursor)).content, "");
    e = await sandbox.commands.run("sleep 600", { background: true });
    await sandbox.commands.interrupt(e.id);
    assert.notEqual((await ended(e.id)).exitCode, 0);
    await assert.rejects(sandbox.commands.getCommandStatus("nonsense"));
  });

  await feature("files: upload, download, ranges, info, permissions, move, delete", async () => {
    const content = "line one\nline two ✓\n";
    await sandbox.files.createDirectories([{ path: "/tmp/d/deep", mode: 755 }]);
    await sandbox.files.writeFiles([{ path: "/tmp/d/deep/x.txt", data: content, mode: 640 }, { path: "/tmp/d/y.bin", data: new Uint8Array([0, 255, 1]) }]);
    assert.equal(await sandbox.files.readFile("/tmp/d/deep/x.txt"), content);
    assert.equal(await sandbox.files.readFile("/tmp/d/deep/x.txt", { offset: 2, limit: 1 }), "line two ✓\n");
    assert.deepEqual([...(await sandbox.files.readBytes("/tmp/d/y.bin"))], [0, 255, 1]);
    assert.deepEqual([...(await sandbox.files.readBytes("/tmp/d/y.bin", { range: "bytes=1-2" }))], [255, 1]);
    const large = new Uint8Array(3 << 20).map((_, i) => i * 7);
    await sandbox.files.writeFiles([{ path: "/tmp/d/large", data: (async function* () { for (let i = 0; i < large.length; i += 1 << 20) yield large.subarray(i, i + (1 << 20)); })() }]);
    const pieces = [];
    for await (const piece of sandbox.files.readBytesStream("/tmp/d/large")) pieces.push(piece);
    assert.ok(Buffer.concat(pieces).equals(Buffer.from(large)));
    let infos = await sandbox.files.getFileInfo(["/tmp/d/deep/x.txt"]);
    assert.equal(infos["/tmp/d/deep/x.txt"].mode, 640);
    assert.equal(infos["/tmp/d/deep/x.txt"].size, Buffer.byteLength(content));
    await sandbox.files.setPermissions([{ path: "/tmp/d/deep/x.txt", mode: 600 }]);
    infos = await sandbox.files.getFileInfo(["/tmp/d/deep/x.txt"]);
    assert.equal(infos["/tmp/d/deep/x.txt"].mode, 600);
    await sandbox.files.moveFiles([{ src: "/tmp/d/deep/x.txt", dest: "/tmp/d/moved/z.txt" }]);
    assert.equal(await sandbox.files.readFile("/tmp/d/moved/z.txt"), content);
    await assert.rejects(sandbox.files.getFileInfo(["/tmp/d/deep/x.txt"]), (error) => error.statusCode === 404 && error.error.code === "SB013");
    await sandbox.files.deleteFiles(["/tmp/d/y.bin", "/tmp/never"]);
  });
  await feature("files: directories, search by name, replaced text", async () => {
    await sandbox.files.writeFiles([{ path: "/tmp/d/a/x.txt", data: "one two one" }, { path: "/tmp/d/a/b/y.py", data: "" }]);
    assert.deepEqual((await sandbox.files.search({ path: "/tmp/d/a", pattern: "*.txt" })).map((f) => f.path), ["/tmp/d/a/x.txt"]);
    assert.deepEqual((await sandbox.files.listDirectory({ path: "/tmp/d/a" })).map((f) => f.path), ["/tmp/d/a/b", "/tmp/d/a/x.txt"]);
    assert.deepEqual((await sandbox.files.listDirectory({ path: "/tmp/d/a", depth: 2 })).map((f) => [f.path, f.type]),
      [["/tmp/d/a/b", "directory"], ["/tmp/d/a/b/y.py", "file"], ["/tmp/d/a/x.txt", "file"]]);
    const counts = await sandbox.files.replaceContentsDetailed([{ path: "/tmp/d/a/x.txt", oldContent: "one", newContent: "1" }]);
    assert.deepEqual(counts, [{ path: "/tmp/d/a/x.txt", replacedCount: 2 }]);
    await sandbox.files.replaceContents([{ path: "/tmp/d/a/x.txt", oldContent: "two", newContent: "2" }]);
    assert.equal(await sandbox.files.readFile("/tmp/d/a/x.txt"), "1 2 1");
    await sandbox.files.deleteDirectories(["/tmp/d"]);
    await assert.rejects(sandbox.files.listDirectory({ path: "/tmp/d" }), (error) => error.statusCode === 404);
  });

  await feature("code: contexts, output, errors, results", async () => {
    const context = await called(execd.POST("/code/context", { body: { language: "python" } }));
    let cell = await run({ code: "x = 20\nprint('hi')", context });
    assert.equal(cell.id, context.id);
    assert.equal(text(cell.logs.stdout), "hi\n");
    assert.ok(cell.complete && !cell.error);
    cell = await run({ code: "x + 22", context });
    assert.equal(cell.result[0].raw["text/plain"], "42");
    assert.equal(cell.result[0].text, "42");
    cell = await run({ code: "nope", context });
    assert.equal(cell.error.name, "NameError");
    assert.ok(!cell.complete);
    assert.deepEqual(await called(execd.GET("/code/contexts/{context_id}", { params: { path: { context_id: context.id } } })), { id: context.id, language: "python" });
    assert.ok((await called(execd.GET("/code/contexts", { params: { query: { language: "python" } } }))).some((c) => c.id === context.id));
    cell = await run({ code: "kept = 5", context: { language: "python" } });
    cell = await run({ code: "print(kept)", context: { language: "python" } });
    assert.equal(text(cell.logs.stdout), "5\n", "a language has a context of its own");
    await refused(execd.POST("/code/context", { body: { language: "cobol" } }), 400);
    await called(execd.DELETE("/code/contexts/{context_id}", { params: { path: { context_id: context.id } } }));
    await refused(execd.GET("/code/contexts/{context_id}", { params: { path: { context_id: context.id } } }), 404);
  });
  await feature("code: interrupts", async () => {
    const context = await called(execd.POST("/code/context", { body: { language: "python" } }));
    let asked;
    const cell = await run({ code: "import time\nprint('begun', flush=True)\ntime.sleep(600)", context }, {
      onStdout: () => { asked ??= called(execd.DELETE("/code", { params: { query: { id: context.id } } })); },
    });
    await asked;
    assert.ok(cell.error && !cell.complete);
    // That of a language is known by no name before it is listed.
    await run({ code: "1", context: { language: "python" } });
    const usual = (await called(execd.GET("/code/contexts", { params: { query: { language: "python" } } }))).filter((c) => c.id !== context.id);
    let stopped;
    const endless = await run({ code: "print('begun', flush=True)\nwhile True: pass", context: { language: "python" } }, {
      onStdout: () => { stopped ??= Promise.all(usual.map((c) => called(execd.DELETE("/code", { params: { query: { id: c.id } } })))); },
    });
    await stopped;
    assert.equal(endless.error.name, "KeyboardInterrupt");
    await refused(execd.DELETE("/code", { params: { query: { id: "nonsense" } } }), 404);
    assert.equal((await run({ code: "1 + 1", context })).result[0].text, "2", "the context is still there");
  });
  await feature("sessions of bash", async () => {
    const session = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
    await sandbox.commands.runInSession(session, "export A=5; cd /");
    const e = await sandbox.commands.runInSession(session, "echo $A; pwd; false");
    assert.deepEqual(texts(e.logs.stdout), ["5", "/"]);
    assert.equal(e.exitCode, 1);
    for (const command of ["pwd # where", "# nothing\npwd", "pwd \\\n"]) {
      assert.deepEqual(texts((await sandbox.commands.runInSession(session, command, { workingDirectory: "/tmp" })).logs.stdout), ["/tmp"]);
    }
    await sandbox.commands.deleteSession(session);
  });

  await feature("terminals over WebSocket", async () => { // by the calls that the next line of the SDK makes
    const { session_id: id } = await called(execd.POST("/pty", { body: { cwd: "/tmp" } }));
    const first = await terminal(id, "?since=0");
    first.type("pwd; stty size; X=kept; echo re\"ady\"\n");
    await first.asksAfter("/tmp\r\n24 80\r\nready\r\n");
    first.send(JSON.stringify({ type: "resize", cols: 100, rows: 50 }));
    first.send(JSON.stringify({ type: "ping" }));
    await first.hears("pong");
    const seen = first.offset; // it sees more meanwhile
    const status = await called(execd.GET("/pty/" + id));
    assert.ok(status.running && status.output_offset >= seen);
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
    const other = (await called(execd.POST("/pty", { body: { command: "exec sleep 600" } }))).session_id;
    await called(execd.DELETE("/pty/" + other));
    await refused(execd.GET("/pty/" + other), 404);
  });

  await feature("ports: HTTP", async () => {
    await sandbox.commands.run("cd /tmp && echo served > page && exec python3 -m http.server 8000", { background: true });
    const port = await sandbox.getEndpoint(8000);
    let page;
    for (let i = 0; i < 300 && !page?.ok; i++) {
      page = await fetch("http://" + port.endpoint + "/page", { headers: port.headers });
      if (page.status === 501) throw await page.json();
      if (!page.ok) await new Promise((done) => setTimeout(done, 100));
    }
    assert.equal(await page.text(), "served\n");
    assert.equal((await fetch("http://" + port.endpoint + "/page")).status, 401);
  });
  await feature("ports: WebSocket", async () => {
    await sandbox.files.writeFiles([{ path: "/tmp/echo.py", data: `
import base64, hashlib, socket
listener = socket.create_server(("127.0.0.1", 8001))
while True:
    peer = listener.accept()[0].makefile("rwb")
    lines = list(iter(peer.readline, b"\\r\\n"))
    if b"" in lines or not lines:
        continue
    key = next((l.split(b": ")[1].strip() for l in lines if l.lower().startswith(b"sec-websocket-key")), None)
    if key is None:
        peer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n"); peer.flush(); peer.close()
        continue
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    peer.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n"); peer.flush()
    head = peer.read(2)
    mask, masked = peer.read(4), peer.read(head[1] & 127)
    text = bytes(b ^ mask[i % 4] for i, b in enumerate(masked))
    peer.write(bytes([0x81, len(text) + 6]) + b"heard " + text); peer.flush()
` }]);
    await sandbox.commands.run("exec python3 /tmp/echo.py", { background: true });
    const port = await sandbox.getEndpoint(8001);
    let listens;
    for (let i = 0; i < 300 && !listens; i++) {
      const answer = await fetch("http://" + port.endpoint + "/", { headers: port.headers });
      if (answer.status === 501) throw await answer.json();
      listens = answer.ok;
      if (!listens) await new Promise((done) => setTimeout(done, 100));
    }
    const heard = await new Promise((resolve, reject) => {
      const socket = new WebSocket("ws://" + port.endpoint + "/", { headers: port.headers });
      socket.onopen = () => socket.send("grüße");
      socket.onmessage = (message) => { resolve(message.data); socket.close(); };
      socket.onerror = (event) => reject(event.error ?? new Error("WebSocket"));
    });
    assert.equal(heard, "heard grüße");
  });

  await feature("metrics, once and as a stream", async () => {
    assert.ok((await sandbox.getMetrics()).memoryTotalMiB > 0);
    const hangUp = new AbortController();
    const { response } = await execd.GET("/metrics/watch", { parseAs: "stream", signal: hangUp.signal });
    assert.equal(response.status, 200);
    let got = "";
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      got += piece;
      if (got.split("\n").length > 2) break;
    }
    const [first, second] = got.split("\n").filter(Boolean).map((line) => JSON.parse(line));
    assert.ok(second.timestamp > first.timestamp && first.mem_total_mib > 0);
    hangUp.abort();
  });
  await feature("the policy of the network, as it is", async () => {
    assert.equal((await sandbox.getEgressPolicy()).defaultAction, network);
    await assert.rejects(sandbox.patchEgressRules([{ action: "allow", target: "example.org" }]), (error) => error.statusCode === (network === "deny" ? 400 : 501));
  });
  await feature("networks that are shut", async () => {
    const shut = await Sandbox.create({ connectionConfig, image: "python:3.12", timeoutSeconds: 600, readyTimeoutSeconds: 240, networkPolicy: { defaultAction: "deny" } });
    assert.deepEqual(await shut.getEgressPolicy(), { defaultAction: "deny", egress: [] });
    await shut.kill();
    await shut.close();
  });
  await feature("snapshots, and sandboxes that go on from them", async () => {
    const manager = SandboxManager.create({ connectionConfig });
    await sandbox.files.writeFiles([{ path: "/tmp/kept.txt", data: "as it was" }]);
    const made = await manager.createSnapshot(sandbox.id, { name: "first" });
    assert.deepEqual([made.sandboxId, made.name, made.status.state], [sandbox.id, "first", "Ready"]);
    await sandbox.files.writeFiles([{ path: "/tmp/kept.txt", data: "changed" }]);
    const next = await manager.createSnapshot(sandbox.id);
    assert.deepEqual((await manager.listSnapshots({ sandboxId: sandbox.id, states: ["Ready"], pageSize: 1 })).items.map((s) => s.id), [next.id]);
    assert.deepEqual((await manager.listSnapshots({ page: 2, pageSize: 1 })).items.map((s) => s.id), [made.id]);
    assert.deepEqual(await manager.getSnapshot(made.id), made);
    const copy = await Sandbox.create({ connectionConfig, snapshotId: made.id, timeoutSeconds: 600, readyTimeoutSeconds: 240, metadata: { app: "copy" } });
    const info = await copy.getInfo();
    assert.deepEqual([info.snapshotId, info.image, info.metadata.app], [made.id, undefined, "copy"]);
    assert.equal((await copy.commands.run("echo $GREETING; cat /tmp/kept.txt")).logs.stdout.map((m) => m.text).join(" "), "moin as it was");
    await copy.kill();
    await copy.close();
    assert.equal(await sandbox.files.readFile("/tmp/kept.txt"), "changed");
    for (const one of [made, next]) await manager.deleteSnapshot(one.id);
    await assert.rejects(manager.getSnapshot(made.id), (error) => error.statusCode === 404);
    await assert.rejects(Sandbox.create({ connectionConfig, snapshotId: made.id, timeoutSeconds: 600 }), (error) => error.error.code === "SB013");
    await manager.close?.();
  });
  await feature("pause and resume", async () => {
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
assert.equal(withheld > 0, mode === "keyless", "the key was kept off the ports");
