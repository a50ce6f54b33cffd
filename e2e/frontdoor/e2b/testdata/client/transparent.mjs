// Uses a sandbox by E2B's published SDKs and prints all that they answer, a step a line.
// usage: node transparent.mjs API SANDBOX KEY SDK; SDK is e2b or e2b-before. What is another
// each time (IDs, numbers of processes, times) is printed by a name.
import assert from "node:assert/strict";
const [apiUrl, sandboxUrl, apiKey, sdk] = process.argv.slice(2);
const { Sandbox } = await import(sdk);
const { Sandbox: Interpreter } = await import("@e2b/code-interpreter");
const options = { apiKey, apiUrl, sandboxUrl, requestTimeoutMs: 240_000, timeoutMs: 600_000 }; // for a slow machine

const names = new Map(); // what to print for a value that is another each time
const shown = (value) => {
  const text = JSON.stringify(value, (key, v) => {
    if (v instanceof Date || /^(timestamp|modifiedTime|startedAt|endAt)$/.test(key)) return v === undefined ? v : "<time>";
    if (v instanceof Uint8Array) return "bytes " + Buffer.from(v).toString("hex");
    if (key === "pid") return "<pid>";
    return v;
  });
  let named = String(text).replaceAll(/(request_id[\\":]+)\w+/g, "$1<id>");
  for (const [from, to] of names) named = named.replaceAll(from, to);
  return named;
};
const step = async (name, use) => {
  try {
    console.log(`${name}: ${shown(await use())}`);
  } catch (error) {
    const { exitCode, stdout, stderr, message } = error;
    console.log(`${name}: ${error.constructor.name} ${shown({ exitCode, stdout, stderr, message })}`);
  }
};
const until = async (done) => {
  for (let i = 0; i < 600 && !(await done()); i++) await new Promise((next) => setTimeout(next, 100));
};
const result = ({ exitCode, stdout, stderr, error }) => ({ exitCode, stdout, stderr, error });

const box = await Sandbox.create({ ...options, metadata: { app: "transparent" }, envs: { GREETING: "moin" } });
names.set(box.sandboxId, "<id>");
const { commands, files } = box;
const run = (command, more) => commands.run(command, more).then(result);

// The control API.
await step("isRunning", () => box.isRunning());
await step("getInfo", () => box.getInfo());
await step("getInfo, seconds", async () => {
  const { startedAt, endAt } = await box.getInfo();
  return Math.round((endAt - startedAt) / 60_000) * 60;
});
const page = (query) => Sandbox.list({ ...options, query }).nextItems().then((all) => all.map((s) => ({ ...s, cpuCount: typeof s.cpuCount })));
await step("list", () => page({ metadata: { app: "transparent" }, state: ["running"] }));
await step("list of what is paused", () => page({ metadata: { app: "transparent" }, state: ["paused"] }));
await step("list of others", () => page({ metadata: { app: "another" } }));
await step("setTimeout", async () => [await box.setTimeout(900_000), Math.round(((await box.getInfo()).endAt - Date.now()) / 100_000)]);
await step("connect", () => Sandbox.connect(box.sandboxId, options).then((one) => one.sandboxId));
await step("connect to nothing", () => Sandbox.connect("inothing", options));
await step("getInfo of nothing", () => Sandbox.getInfo("inothing", options));
await step("kill of nothing", () => Sandbox.kill("inothing", options));
await step("setTimeout of nothing", () => Sandbox.setTimeout("inothing", 1000, options));
await step("create of an unknown template", () => Sandbox.create("nonsense", options));
await step("create with another key", () => Sandbox.create({ ...options, apiKey: "e2b_00" }));

// Commands.
await step("run", () => run('echo "hi ✓"; pwd; echo $GREETING $HOME $X; echo err >&2', { envs: { X: "y" } }));
await step("run in a directory", () => run("pwd", { cwd: "/tmp" }));
await step("run in a directory of home", () => run("mkdir -p sub && cd sub && pwd"));
await step("run that fails", () => run("echo out; echo err >&2; exit 7"));
await step("run that is killed", () => run("kill -9 $$"));
await step("run of what there is not", () => run("no-such-program"));
await step("run that takes too long", () => run("echo out; sleep 60", { timeoutMs: 1000 }));
await step("run in no directory", () => run("true", { cwd: "/nowhere" }));
await step("run with much output", () => run("seq 1 20000").then(({ stdout }) => [stdout.length, stdout.slice(-12)]));
await step("run of bytes", () => run("printf '\\xff\\xe2\\x9c\\x93'"));
await step("run in pieces", async () => {
  const pieces = [];
  await commands.run("echo 1; sleep 0.2; echo 2; sleep 0.2; echo 3 >&2", { onStdout: (t) => void pieces.push(t), onStderr: (t) => void pieces.push("err " + t) });
  return pieces.join("");
});
let ended;
await step("a command in the background", async () => {
  const served = await commands.run("read line; echo got $line; exec sleep 1000", { background: true, stdin: true, timeoutMs: 0 });
  const listed = (await commands.list()).filter((p) => p.pid === served.pid);
  await served.disconnect();
  const again = await commands.connect(served.pid, { timeoutMs: 0 });
  await commands.sendStdin(served.pid, "this\n");
  await until(() => again.stdout === "got this\n");
  const killed = await commands.kill(served.pid);
  const end = await again.wait().catch((e) => ({ name: e.constructor.name, exitCode: e.exitCode, message: e.message }));
  await until(async () => !(await commands.list()).some((p) => p.pid === served.pid));
  ended = served.pid;
  return { listed, killed, end, stdout: again.stdout };
});
await step("kill of what has ended", () => commands.kill(ended));
await step("closeStdin", async () => {
  const cat = await commands.run("cat", { background: true, stdin: true });
  await commands.sendStdin(cat.pid, "to the end");
  await commands.closeStdin(cat.pid);
  return result(await cat.wait());
});
await step("connect to no process", () => commands.connect(1_999_999));
await step("sendStdin to no process", () => commands.sendStdin(1_999_999, "x"));
await step("kill of no process", () => commands.kill(1_999_999));
await step("a terminal", async () => {
  let text = "";
  const terminal = await box.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (data) => void (text += new TextDecoder().decode(data)) });
  // Before it asks, readline sets the size of the terminal to what it has just read: one that comes in between is lost.
  await until(() => /[$#] (\x1b\S*)?$/.test(text));
  await box.pty.resize(terminal.pid, { cols: 111, rows: 22 });
  await box.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size; echo $TERM $((40 + 2))\n"));
  await until(() => /\n\S+ 42/.test(text));
  const killed = await box.pty.kill(terminal.pid);
  const end = await terminal.wait().catch((e) => [e.constructor.name, e.exitCode, e.message]);
  return { shown: /22 111\r\n(\S+ 42)/.exec(text)?.[1], killed, end };
});

// Files.
await step("write", () => files.write("test.txt", "line one\nline two ✓\n"));
await step("read", () => files.read("test.txt"));
await step("read of an absolute path", () => files.read("/home/user/test.txt"));
await step("read of bytes", () => files.read("test.txt", { format: "bytes" }));
await step("read of a stream", async () => (await new Response(await files.read("test.txt", { format: "stream" })).text()).length);
await step("write of nothing", () => files.write("empty", ""));
await step("read of nothing", () => files.read("empty"));
await step("write of many", () => files.write([{ path: "d/deep/x.txt", data: "x" }, { path: "/tmp/y.bin", data: new Uint8Array([0, 255, 1]).buffer }]));
await step("read of binary", () => files.read("/tmp/y.bin", { format: "bytes" }));
await step("write over a directory", () => files.write("d", "x"));
await step("write below a file", () => files.write("test.txt/x", "x"));
await step("read of no file", () => files.read("nowhere"));
await step("read of a directory", () => files.read("d"));
await step("getInfo of a file", () => files.getInfo("test.txt"));
await step("getInfo of a directory", () => files.getInfo("d"));
await step("getInfo of a link", async () => {
  await commands.run("ln -s test.txt link");
  return files.getInfo("link");
});
await step("getInfo of no file", () => files.getInfo("nowhere"));
await step("exists", async () => [await files.exists("test.txt"), await files.exists("d"), await files.exists("nowhere")]);
await step("makeDir", () => files.makeDir("d/new/er"));
await step("makeDir once more", () => files.makeDir("d/new/er"));
await step("makeDir over a file", () => files.makeDir("test.txt"));
await step("list of a directory", () => files.list("d"));
await step("list in depth", () => files.list("d", { depth: 3 }).then((all) => all.map((f) => f.path)));
await step("list of a file", () => files.list("test.txt"));
await step("list of nothing", () => files.list("nowhere"));
await step("rename", () => files.rename("d/deep/x.txt", "d/new/z.txt"));
await step("rename of no file", () => files.rename("nowhere", "there"));
await step("remove", () => files.remove("d"));
await step("remove of no file", () => files.remove("d"));
await step("exists after that", () => files.exists("d"));
await files.makeDir("watched");
const changes = async (change, last) => {
  const seen = [];
  const watch = await files.watchDir("watched", (event) => void seen.push(event));
  await change();
  await until(() => seen.some((event) => event.name === last[0] && event.type === last[1]));
  await watch.stop();
  return [...new Set(seen.map((event) => event.name + " " + event.type))].sort();
};
await step("watchDir", () => changes(() => commands.run("cd watched; echo x > new; mv new old; rm old"), ["old", "remove"]));
await step("watchDir of what is written", () => changes(() => files.write("watched/new", "x").then(() => commands.run("rm watched/new")), ["new", "remove"]));
await step("watchDir of nothing", () => files.watchDir("nowhere", () => {}));
await step("watchDir of a file", () => files.watchDir("test.txt", () => {}));

// Pause and resume.
const pause = () => (box.pause ?? box.betaPause).call(box);
await step("pause", pause);
await step("getInfo when paused", () => box.getInfo().then((info) => info.state));
await step("isRunning when paused", () => box.isRunning());
await step("run when paused", () => run("true"));
await step("read when paused", () => files.read("test.txt"));
await step("pause once more", pause);
await step("connect resumes", async () => {
  const resumed = await Sandbox.connect(box.sandboxId, options);
  return [await resumed.isRunning(), (await resumed.files.read("test.txt")).length];
});

// Code.
const interpreter = await Interpreter.create(options);
names.set(interpreter.sandboxId, "<id>");
const code = async (text, more) => {
  const { results, logs, error, executionCount } = await interpreter.runCode(text, more);
  // What is in the middle of a traceback is the interpreter's own.
  logs.stderr = logs.stderr.join("").replace(/^(Traceback.*?:)[^]*\n(?=.)/, "$1 ... ");
  return { results, logs, error: error && { ...error, traceback: error.traceback.includes(error.name + ": ") }, executionCount };
};
await step("code", () => code("x = 20\nprint('hi ✓')\nx + 22"));
await step("code with state", () => code("import os, sys; print(x, os.getcwd()); sys.stderr.write('e')"));
await step("code that fails", () => code("nope"));
await step("code that ends", () => code("import sys; sys.exit(3)"));
await step("code that is none", () => code("1 +"));
await step("code of text", () => code("'text'"));
await step("code of a list", () => code("[1, 'two', None]"));
await step("code that displays", () => code("class H:\n  def _repr_html_(self): return '<b>h</b>'\n  def __repr__(self): return 'H'\nH()"));
// Charts, as what E2B's kernel finds in figures; that of a figure with several has them as its elements.
const points = { x_label: "t", y_label: null, x_unit: "s", y_unit: null, x_ticks: [0, 1], x_tick_labels: ["0", "1"], x_scale: "linear", y_ticks: [], y_tick_labels: [], y_scale: "log", elements: [{ label: "a", points: [[0, 1.5], ["2026-01-01", 2]] }] };
const charts = [
  { type: "line", title: "Line ✓", ...points },
  { type: "scatter", title: null, ...points },
  { type: "bar", title: "Bar", x_label: "", elements: [{ label: "a", group: "g", value: 1 }] },
  { type: "pie", title: "Pie", elements: [{ label: "a", angle: 90, radius: 1 }] },
  { type: "box_and_whisker", title: "Box", elements: [{ label: "a", min: 1, first_quartile: 2, median: 3, third_quartile: 4, max: 5, outliers: [9] }] },
];
charts.push({ type: "superchart", title: "All", elements: [...charts] });
const drawn = await interpreter.runCode(`import json\nclass C:\n  def __init__(self, chart): self.chart = chart\n  def _repr_e2b_chart_(self): return self.chart\n  def _repr_e2b_data_(self): return {"a": [1, 2]}\nfor chart in json.loads(${JSON.stringify(JSON.stringify(charts))}): display(C(chart))`);
assert.deepEqual(drawn.results.map(({ chart, data, isMainResult }) => [chart, data, isMainResult]), charts.map((chart) => [chart, { a: [1, 2] }, false]));
await step("code that draws charts", () => drawn.results.map((drawing) => [drawing.formats(), drawing.extra]));
await step("code in JavaScript", () => code("const a = 20; console.log('hi'); a + 22", { language: "js" }));
await step("code in R", () => code("1", { language: "r" }));
await step("contexts", async () => {
  const context = await interpreter.createCodeContext({ cwd: "/tmp", language: "python" });
  names.set(context.id, "<context>");
  const first = await code("import os; y = os.getcwd()", { context });
  const second = await code("y", { context });
  const listed = (await interpreter.listCodeContexts()).filter((one) => one.id === context.id);
  await interpreter.restartCodeContext(context);
  const restarted = await code("y", { context });
  await interpreter.removeCodeContext(context);
  return { context, first, second, listed, restarted };
});
await step("code in no context", () => code("1", { context: { id: "nothing", language: "python", cwd: "/" } }));
await step("code that takes too long", () => code("while True: pass", { timeoutMs: 2000 }));
await step("kill of the interpreter", () => interpreter.kill());

// The end.
await step("kill", () => box.kill());
await step("kill once more", () => box.kill());
await step("isRunning after the end", () => box.isRunning());
await step("getInfo after the end", () => box.getInfo());
await step("run after the end", () => run("true"));
await step("read after the end", () => files.read("test.txt"));
console.log("done");
process.exit(0); // the SDK waits for its own time limits
