// Uses a sandbox by ComputeSDK's provider for E2B, as it is published, and prints what comes
// of it. Where the server is and the key are in the environment.
import { e2b } from "@computesdk/e2b";

const show = (name, value) => console.log(`${name}: ${JSON.stringify(value)}`);
const { sandbox: sandboxes } = e2b({ timeout: 600_000 });
const sandbox = await sandboxes.create({ envs: { GREETING: "moin" }, metadata: { app: "tools" } });
const run = async (command, options) => {
  const { exitCode, stdout, stderr } = await sandbox.runCommand(command, options);
  return { exitCode, stdout, stderr };
};
const { filesystem } = sandbox;
show("run", await run("echo $GREETING; pwd"));
show("run that fails", await run("echo err >&2; exit 3"));
show("run in a directory", await run("pwd", { cwd: "/tmp", env: { X: "y" } }));
show("python", await run("python3 - <<'PY'\nprint(6 * 7)\nPY"));
await filesystem.mkdir("work/deep");
await filesystem.writeFile("work/a.txt", "written ✓");
show("readFile", await filesystem.readFile("work/a.txt"));
show("readdir", (await filesystem.readdir("work")).map((one) => one.name).sort());
await filesystem.remove("work/a.txt");
show("exists", [await filesystem.exists("work/a.txt"), await filesystem.exists("work")]);
await run("sleep 600", { background: true });
const again = await sandboxes.getById(sandbox.sandboxId);
show("getById", again?.sandboxId === sandbox.sandboxId && (await again.runCommand("pgrep -c sleep || true")).stdout.trim() !== "");
show("list", (await sandboxes.list()).map((one) => one.sandboxId === sandbox.sandboxId));
await sandbox.destroy();
show("list after destroy", (await sandboxes.list()).length);
show("getById after destroy", await sandboxes.getById(sandbox.sandboxId));
process.exit(0); // the SDK waits for its own time limits
