// The agent with OpenSandbox's SDK. usage: node opensandbox.mjs, with BROKER_URL and BROKER_TOKEN.
import { ConnectionConfig, Sandbox } from "@alibaba-group/opensandbox";
import { token, url, work } from "./agent.mjs";

const connectionConfig = new ConnectionConfig({ domain: url + "/opensandbox", apiKey: token });
const sandbox = await Sandbox.create({ connectionConfig, image: "python:3.12" });
const inside = (name) => "/workspace/" + name;

await work({
  upload: (name, text) => sandbox.files.writeFiles([{ path: inside(name), data: text }]),
  run: async (code) => {
    await sandbox.files.writeFiles([{ path: inside("step.py"), data: code }]);
    const { exitCode, logs } = await sandbox.commands.run("python3 step.py", { workingDirectory: inside("") });
    return { failed: exitCode !== 0, said: (exitCode === 0 ? logs.stdout : logs.stderr).map((line) => line.text).join("\n") };
  },
  download: (name) => sandbox.files.readFile(inside(name)),
  destroy: () => sandbox.kill(),
});
