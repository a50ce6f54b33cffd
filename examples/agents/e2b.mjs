// The agent with E2B's SDK. usage: node e2b.mjs, with BROKER_URL and BROKER_TOKEN; a token that does
// not begin with e2b_ needs E2B_VALIDATE_API_KEY=false.
import { Sandbox } from "@e2b/code-interpreter";
import { token, url, work } from "./agent.mjs";

const sandbox = await Sandbox.create({ apiKey: token, apiUrl: url + "/e2b", sandboxUrl: url + "/e2b" });

await work({
  upload: (name, text) => sandbox.files.write(name, text),
  run: async (code) => {
    const { error, logs } = await sandbox.runCode(code);
    return { failed: !!error, said: error ? `${error.name}: ${error.value}` : logs.stdout.join("") };
  },
  download: (name) => sandbox.files.read(name),
  destroy: () => sandbox.kill(),
});
