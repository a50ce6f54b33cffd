// Times how long it takes from asking for a sandbox to the first output of a command in it.
// usage: node client.mjs ADDRESS TOKEN
// Each line of standard input is "opensandbox" or "e2b", for that system's SDK through its
// front door, or "own", for the broker's own API. Each is answered by a line with the milliseconds, when the
// sandbox is gone again.
import { createInterface } from "node:readline";
import { ConnectionConfig, Sandbox as OpenSandbox } from "@alibaba-group/opensandbox";
import { Sandbox as E2B } from "e2b";

const [address, token] = process.argv.slice(2);
const connectionConfig = new ConnectionConfig({ domain: address + "/opensandbox", apiKey: token, requestTimeoutSeconds: 240 });

async function opensandbox() {
  let first;
  const began = performance.now();
  const sandbox = await OpenSandbox.create({ connectionConfig, image: "bench", timeoutSeconds: 600, readyTimeoutSeconds: 240 });
  const run = await sandbox.commands.run("echo hello", undefined, { onStdout: () => { first ??= performance.now(); } });
  if (run.logs.stdout[0]?.text !== "hello") throw new Error(JSON.stringify(run));
  await sandbox.kill();
  await sandbox.close();
  return first - began;
}

const connection = { apiKey: token, apiUrl: address + "/e2b", sandboxUrl: address + "/e2b", requestTimeoutMs: 240_000 };

async function e2b() {
  let first;
  const began = performance.now();
  const sandbox = await E2B.create("base", { ...connection, timeoutMs: 600_000 });
  const run = await sandbox.commands.run("echo hello", { onStdout: () => { first ??= performance.now(); } });
  if (run.stdout !== "hello\n") throw new Error(JSON.stringify(run));
  await sandbox.kill();
  return first - began;
}

async function ask(method, path, body, accept) {
  const answer = await fetch(address + "/api/v1/instances" + path, {
    method, headers: { Authorization: "Bearer " + token, "Content-Type": "application/json", Accept: accept ?? "application/json" }, body: body && JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(method + " " + path + ": " + answer.status + " " + await answer.text());
  return answer;
}

async function own() {
  let first, text = "";
  const began = performance.now();
  const { id } = await (await ask("POST", "", { template: "python" })).json();
  const decoder = new TextDecoder();
  for await (const piece of (await ask("POST", "/" + id + "/commands", { command: "echo hello" }, "text/event-stream")).body) {
    text += decoder.decode(piece, { stream: true });
    if (text.includes('"text":"hello\\n"')) first ??= performance.now();
  }
  if (first === undefined) throw new Error(text);
  await (await ask("DELETE", "/" + id)).text();
  return first - began;
}

const ways = { opensandbox, e2b, own };
for await (const line of createInterface({ input: process.stdin })) console.log(await ways[line]());
