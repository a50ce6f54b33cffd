// Uses a Daytona as a program does that was written for it, by its published SDK.
// usage: node client.mjs APIURL KEY DAEMON; DAEMON is old for the one of v0.190.0, whose
// sandboxes are containers, or new for what came later, in virtual machines.
//
// It prints one line for each feature, with what became of it: it works, or is refused by
// what the old one has not. Anything else ends it.
import assert from "node:assert/strict";
import { Daytona, DaytonaConnectionError, DaytonaNotFoundError, Image } from "@daytona/sdk";

const [apiUrl, apiKey, daemon] = process.argv.slice(2);
const daytona = new Daytona({ apiUrl, apiKey });

const feature = async (name, use, newer = false) => {
  let refused = false;
  try {
    await use();
  } catch (error) {
    // A WebSocket that is refused has no status.
    refused = newer && daemon === "old" && ([400, 404].includes(error.statusCode) || error instanceof DaytonaConnectionError);
    if (!refused) throw new Error(name, { cause: error });
  }
  console.log(refused ? "refused" : "works  ", name);
};
const status = (code) => (error) => {
  assert.equal(error.statusCode, code, String(error));
  return true;
};
const decoder = new TextDecoder();

const sandbox = await daytona.create({
  name: "first", language: "python", envVars: { GREETING: "moin" }, labels: { app: "e2e" }, autoStopInterval: 30, autoDeleteInterval: 60, ttlMinutes: 600,
});
const { process: shell, fs, codeInterpreter } = sandbox;

await feature("sandboxes: from a snapshot, get by ID and name, list by label, in pages", async () => {
  assert.equal(sandbox.state, "started");
  assert.deepEqual([sandbox.cpu, sandbox.memory, sandbox.disk], [1, 1, 3]);
  assert.deepEqual(sandbox.labels, { app: "e2e", "code-toolbox-language": "python" });
  assert.equal(sandbox.autoStopInterval, 30);
  assert.equal((await daytona.get("first")).id, sandbox.id);
  assert.equal((await daytona.get(sandbox.id)).name, "first");
  await assert.rejects(daytona.get("nobody"), DaytonaNotFoundError);
  await daytona.create({ labels: { app: "e2e", second: "yes" } });
  const found = [];
  for await (const one of daytona.list({ labels: { app: "e2e" }, limit: 1 })) found.push(one);
  assert.deepEqual(found.map((one) => one.labels.second), ["yes", undefined]);
  await found[0].delete(60, true);
  const states = [];
  for await (const one of daytona.list({ states: ["started"] })) states.push(one.name);
  assert.deepEqual(states, ["first"]);
});
await feature("sandboxes: from an image, which is built once; resources", async () => {
  const made = await daytona.create({ image: "python:3.12-slim", resources: { cpu: 2, memory: 4, disk: 5 }, ephemeral: true, networkBlockAll: true });
  assert.deepEqual([made.cpu, made.memory, made.disk, made.autoDeleteInterval, made.networkBlockAll], [2, 4, 5, 0, true]);
  await made.stop(); // which ends it
  await assert.rejects(daytona.get(made.id), DaytonaNotFoundError);
  await (await daytona.create({ image: Image.base("python:3.12-slim") })).delete();
  await assert.rejects(daytona.create({ image: "python:3.12-slim", resources: { cpu: 64 } }), status(400));
  await assert.rejects(daytona.create({ snapshot: "nobody" }), status(400));
  await assert.rejects(daytona.create({ name: "first" }), status(409));
});
await feature("sandboxes: labels, intervals, activity, network", async () => {
  assert.deepEqual(await sandbox.setLabels({ app: "e2e", run: "1" }), { app: "e2e", run: "1" });
  await sandbox.setAutostopInterval(15);
  await sandbox.setAutoArchiveInterval(60);
  await sandbox.setAutoDeleteInterval(120);
  await sandbox.setTtl(300);
  await sandbox.refreshActivity();
  await sandbox.updateNetworkSettings({ networkAllowList: "10.0.0.0/8,192.168.1.0/24" });
  await sandbox.refreshData();
  assert.deepEqual([sandbox.autoStopInterval, sandbox.autoArchiveInterval, sandbox.autoDeleteInterval, sandbox.networkAllowList], [15, 60, 120, "10.0.0.0/8,192.168.1.0/24"]);
  await assert.rejects(sandbox.updateNetworkSettings({ networkAllowList: "example.com" }), status(400));
  await sandbox.updateNetworkSettings({ networkBlockAll: true });
});
await feature("snapshots: list, get", async () => {
  const { items } = await daytona.snapshot.list();
  assert.equal(items.length, 1);
  assert.equal((await daytona.snapshot.get(items[0].name)).state, "active");
});
await feature("the sandbox: directories, a key that is not good", async () => {
  assert.equal(await sandbox.getWorkDir(), "/home/daytona");
  assert.equal(await sandbox.getUserHomeDir(), "/home/daytona");
  await assert.rejects(new Daytona({ apiUrl, apiKey: "nobody's" }).get("first"), status(401));
});
await feature("the sandbox: metrics", async () => {
  const metrics = await sandbox.getMetricsLatest();
  assert.ok(Object.values(metrics).some((value) => value > 1 << 20), JSON.stringify(metrics));
}, true);

await feature("commands: output, exit codes, directories, variables", async () => {
  let run = await shell.executeCommand("echo out; echo err >&2; echo $GREETING $X; pwd; exit 3", "/tmp", { X: "a b'\"$" });
  assert.deepEqual([run.exitCode, run.result], [3, "out\nerr\nmoin a b'\"$\n/tmp\n"]);
  run = await shell.executeCommand("cat\neaten"); // commands are the standard input of the shell
  assert.deepEqual([run.exitCode, run.result], [0, "eaten"]);
  assert.equal((await shell.executeCommand("nowhere-to-be-found")).exitCode, 127);
  assert.deepEqual([(await shell.executeCommand("echo lost; kill -9 $$")).exitCode, (await shell.executeCommand("echo lost; kill -9 $$")).result], [-1, ""]);
  run = await shell.executeCommand("pwd", "/nowhere");
  assert.equal(run.exitCode, -1);
  assert.match(run.result, /no such file/);
  await assert.rejects(shell.executeCommand(" "), status(400));
  await assert.rejects(shell.executeCommand("sleep 60", undefined, undefined, 1), status(408));
});
await feature("code: arguments, variables, exit codes", async () => {
  let run = await shell.codeRun("import os, sys\nprint(sys.argv[1], os.environ['X'])\nsys.exit(4)", { argv: ["a b"], env: { X: "y" } });
  assert.deepEqual([run.exitCode, run.result], [4, "a b y\n"]);
  const node = await daytona.create({ language: "javascript" });
  run = await node.process.codeRun("console.log(6 * 7)");
  assert.deepEqual([run.exitCode, run.result], [0, "42\n"]);
  await node.delete();
});
await feature("sessions: state, both streams, commands in the background, input", async () => {
  await shell.createSession("s");
  await assert.rejects(shell.createSession("s"), status(409));
  await shell.executeSessionCommand("s", { command: "cd /tmp; X=kept" });
  let run = await shell.executeSessionCommand("s", { command: "echo $X; pwd; echo err >&2; false" });
  assert.deepEqual([run.exitCode, run.stdout, run.stderr], [1, "kept\n/tmp\n", "err\n"]);
  run = await shell.executeSessionCommand("s", { command: "read line; echo got $line; echo late >&2", runAsync: true });
  assert.equal((await shell.getSessionCommand("s", run.cmdId)).exitCode, undefined);
  const heard = { stdout: "", stderr: "" };
  const logs = shell.getSessionCommandLogs("s", run.cmdId, (text) => { heard.stdout += text; }, (text) => { heard.stderr += text; });
  await shell.sendSessionCommandInput("s", run.cmdId, "grüße\n");
  await logs;
  assert.deepEqual(heard, { stdout: "got grüße\n", stderr: "late\n" });
  assert.equal((await shell.getSessionCommand("s", run.cmdId)).exitCode, 0);
  const all = await shell.getSessionCommandLogs("s", run.cmdId);
  assert.deepEqual([all.stdout, all.stderr], ["got grüße\n", "late\n"]);
  await assert.rejects(shell.sendSessionCommandInput("s", run.cmdId, "x"), status(410));
  run = await shell.executeSessionCommand("s", { command: "seq 1 20000; seq 1 20000 >&2", runAsync: true });
  const long = { stdout: "", stderr: "" };
  await shell.getSessionCommandLogs("s", run.cmdId, (text) => { long.stdout += text; }, (text) => { long.stderr += text; });
  const numbers = Array.from({ length: 20000 }, (_, i) => i + 1 + "\n").join("");
  assert.ok(long.stdout === numbers && long.stderr === numbers);
  assert.equal((await shell.getSession("s")).commands.length, 4);
  assert.deepEqual((await shell.listSessions()).map((one) => one.sessionId), ["s"]);
  await shell.deleteSession("s");
  await assert.rejects(shell.getSession("s"), status(404));
});
await feature("interpreters: state, output, errors, variables, time limits, contexts", async () => {
  let run = await codeInterpreter.runCode("import sys\nx = 20\nprint('hi')\nprint('err', file=sys.stderr)");
  assert.deepEqual([run.stdout, run.stderr, run.error], ["hi\n", "err\n", undefined]);
  run = await codeInterpreter.runCode("print(x + 22)\nnope");
  assert.equal(run.stdout, "42\n");
  assert.equal(run.error.name, "NameError");
  assert.match(run.error.traceback, /Traceback/);
  run = await codeInterpreter.runCode("x + 1"); // values are not told
  assert.deepEqual(run, { stdout: "", stderr: "" });
  assert.equal((await codeInterpreter.runCode("import os; print(os.environ['X'])", { envs: { X: "y" } })).stdout, "y\n");
  assert.equal((await codeInterpreter.runCode("print(os.environ.get('X'))")).stdout, "None\n");
  await codeInterpreter.runCode("import time; time.sleep(60)", { timeout: 1 }); // interrupted
  assert.equal((await codeInterpreter.runCode("print(x)")).stdout, "20\n");
  const context = await codeInterpreter.createContext("/tmp");
  assert.equal((await codeInterpreter.runCode("import os; print(os.getcwd(), 'x' in globals())", { context })).stdout, "/tmp False\n");
  assert.deepEqual((await codeInterpreter.listContexts()).map((one) => one.id), [context.id]);
  await codeInterpreter.deleteContext(context);
  assert.deepEqual(await codeInterpreter.listContexts(), []);
});

await feature("files: upload, download, streams, info, list, folders", async () => {
  await fs.uploadFile(Buffer.from("line one\nline two ✓\n"), "/tmp/d/deep/x.txt");
  assert.equal(decoder.decode(await fs.downloadFile("/tmp/d/deep/x.txt")), "line one\nline two ✓\n");
  const large = Buffer.from(new Uint8Array(3 << 20).map((_, i) => i * 7));
  await fs.uploadFiles([{ source: large, destination: "/tmp/d/large" }, { source: Buffer.from("y"), destination: "y" }]);
  assert.ok(Buffer.from(await fs.downloadFile("/tmp/d/large")).equals(large));
  assert.equal(decoder.decode(await fs.downloadFile("/home/daytona/y")), "y");
  await fs.uploadFileStream(large, "/tmp/d/streamed");
  const pieces = [];
  for await (const piece of await fs.downloadFileStream("/tmp/d/streamed")) pieces.push(piece);
  assert.ok(Buffer.concat(pieces).equals(large));
  const [good, missing] = await fs.downloadFiles([{ source: "/home/daytona/y" }, { source: "/nowhere" }]);
  assert.equal(decoder.decode(good.result), "y");
  assert.equal(missing.errorDetails.statusCode, 404);
  await fs.createFolder("/tmp/d/folder", "0750");
  const info = await fs.getFileDetails("/tmp/d/folder");
  assert.deepEqual([info.name, info.isDir, info.permissions, info.mode, info.owner], ["folder", true, "0750", "drwxr-x---", "1000"]);
  assert.deepEqual((await fs.listFiles("/tmp/d")).map((f) => f.name), ["deep", "folder", "large", "streamed"]);
  assert.deepEqual((await fs.listFiles("/tmp/d", { depth: 2 })).map((f) => f.path), ["/tmp/d/deep", "/tmp/d/deep/x.txt", "/tmp/d/folder", "/tmp/d/large", "/tmp/d/streamed"]);
  await assert.rejects(fs.getFileDetails("/nowhere"), status(404));
});
await feature("files: permissions, move, delete", async () => {
  await fs.setFilePermissions("/tmp/d/deep/x.txt", { mode: "600" });
  assert.equal((await fs.getFileDetails("/tmp/d/deep/x.txt")).permissions, "0600");
  await fs.moveFiles("/tmp/d/deep/x.txt", "/tmp/d/z.txt");
  await fs.deleteFile("/tmp/d/large");
  await assert.rejects(fs.deleteFile("/tmp/d/deep"), status(400));
  await fs.deleteFile("/tmp/d/deep", true);
  await assert.rejects(fs.deleteFile("/tmp/d/deep"), status(404));
});
await feature("files: found by text and by name, replaced text", async () => {
  assert.deepEqual(await fs.findFiles("/tmp/d", "two"), [{ file: "/tmp/d/z.txt", line: 2, content: "line two ✓" }]);
  assert.deepEqual(await fs.searchFiles("/tmp/d", "*.txt"), { files: ["/tmp/d/z.txt"] });
  const results = await fs.replaceInFiles(["/tmp/d/z.txt", "/nowhere"], "line", "row");
  assert.deepEqual(results.map((one) => one.success), [true, false]);
  assert.equal(decoder.decode(await fs.downloadFile("/tmp/d/z.txt")), "row one\nrow two ✓\n");
});

await feature("terminals: input, output, size, exit", async () => {
  let shown = "", changed = () => {};
  const terminal = await shell.createPty({
    id: "t", cols: 100, rows: 30, cwd: "/tmp", envs: { X: "y" }, onData: (data) => { shown += decoder.decode(data); changed(); },
  });
  const sees = async (text) => { while (!shown.includes(text)) await new Promise((resolve) => { changed = resolve; }); };
  await terminal.sendInput("echo [$X $(pwd) $(stty size)]\n");
  await sees("[y /tmp 30 100]");
  await terminal.resize(120, 40);
  await terminal.sendInput("echo [$(stty size)]\n");
  await sees("[40 120]");
  assert.deepEqual((await shell.listPtySessions()).map((one) => [one.id, one.cols]), [["t", 120]]);
  await terminal.sendInput("exit 5\n");
  assert.equal((await terminal.wait()).exitCode, 5);
  const killed = await shell.createPty({ id: "u", onData: () => {} });
  await killed.kill();
  await killed.wait();
  await assert.rejects(shell.getPtySessionInfo("u"), status(404));
}, true);

await feature("ports: previews with a token, signed ones", async () => {
  await shell.createSession("server");
  await shell.executeSessionCommand("server", { command: "cd /tmp/d && exec python3 -m http.server 8000", runAsync: true });
  const preview = await sandbox.getPreviewLink(8000);
  const skip = { "X-Daytona-Skip-Preview-Warning": "true" };
  const get = (url, headers) => fetch(url, { headers, redirect: "manual" });
  while ((await get(preview.url + "/z.txt", { ...skip, "x-daytona-preview-token": preview.token })).status === 502);
  assert.equal(await (await get(preview.url + "/z.txt?DAYTONA_SANDBOX_AUTH_KEY=" + preview.token, skip)).text(), "row one\nrow two ✓\n");
  assert.match(await (await get(preview.url + "/z.txt", { "x-daytona-preview-token": preview.token })).text(), /<!DOCTYPE/);
  assert.equal((await get(preview.url + "/z.txt", skip)).status, 307);
  const signed = await sandbox.getSignedPreviewUrl(8000, 60);
  assert.equal((await get(signed.url + "/z.txt", skip)).status, 200);
  await sandbox.expireSignedPreviewUrl(8000, signed.token);
  assert.equal((await get(signed.url + "/z.txt", skip)).status, 401);
});

await feature("life: resize", async () => {
  await sandbox.resize({ cpu: 2 });
  assert.equal(sandbox.cpu, 2);
  await assert.rejects(sandbox.resize({ cpu: 1 }), status(400));
  await assert.rejects(sandbox.resize({ disk: 5 }), status(400));
});
await feature("life: pause and resume, which keeps what is in memory", async () => {
  await codeInterpreter.runCode("kept = 5");
  await sandbox.pause();
  assert.equal(sandbox.state, "paused");
  await sandbox.start();
  assert.equal((await codeInterpreter.runCode("print(kept)")).stdout, "5\n");
}, true);
await feature("life: stop, resize of the disk, archive and start, which keep files; delete", async () => {
  await codeInterpreter.runCode("kept = 5");
  await sandbox.stop();
  assert.equal(sandbox.state, "stopped");
  await assert.rejects(shell.executeCommand("true"), status(400));
  await sandbox.resize({ disk: 5 });
  await sandbox.archive();
  await sandbox.start();
  assert.equal(sandbox.disk, 5);
  assert.equal((await codeInterpreter.runCode("kept")).error.name, "NameError");
  assert.equal((await shell.executeCommand("cat /tmp/d/z.txt")).result, "row one\nrow two ✓\n");
  await sandbox.delete(60, true);
  await assert.rejects(daytona.get("first"), DaytonaNotFoundError);
});
await daytona[Symbol.asyncDispose]();
