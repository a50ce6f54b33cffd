// Uses a sandbox by Mastra's provider for E2B, as it is published, and prints what comes of
// it. Where the server is and the key are in the environment.
import { E2BSandbox } from "@mastra/e2b";

const show = (name, value) => console.log(`${name}: ${JSON.stringify(value)}`);
const made = new E2BSandbox({ id: "agent", template: "base", timeout: 600_000, env: { GREETING: "moin" } });
await made._start();
const run = async (sandbox, ...command) => {
  const { exitCode, stdout, stderr } = await sandbox.executeCommand(...command);
  return { exitCode, stdout, stderr };
};
show("run", await run(made, "sh", ["-c", "echo $GREETING; pwd"]));
show("run that fails", (await run(made, "sh", ["-c", "exit 3"])).exitCode); // of output it would have all twice
await made.writeFiles([{ path: "work/a.txt", content: "written ✓" }]);
show("files", await made.e2b.files.read("work/a.txt"));
const job = await made.processes.spawn("i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done");

// Its timeout pauses it, with what runs in it, and who starts it goes on there.
const state = async () => (await made.e2b.getInfo()).state;
show("lifecycle", (await made.e2b.getInfo()).lifecycle.onTimeout);
await made.e2b.setTimeout(1000);
while ((await state()) !== "paused");
show("at its timeout", await state());
const again = new E2BSandbox({ id: "agent", template: "base", timeout: 600_000 });
await again._start();
show("the same", again.e2b.sandboxId === made.e2b.sandboxId);
show("state", await state());
show("files after the pause", await again.e2b.files.read("work/a.txt"));
const count = async () => Number((await run(again, "cat", ["/tmp/count"])).stdout);
const before = await count();
while ((await count()) <= before);
show("what ran goes on", (await again.processes.list()).some((one) => one.pid === String(job.pid) || one.pid === job.pid));
await again._stop();
show("stopped", await state());
await again._start();
show("started", await state());
await again._destroy();
show("destroyed", await made.e2b.isRunning());
process.exit(0);
