// Has a sandbox reach what its creator and its owner say, by OpenSandbox's SDK.
// usage: node network.mjs DOMAIN KEY PORT; PORT of 127.0.0.1 is what the tenant may reach.
// Exits with 0 if all is as it should be.
import assert from "node:assert/strict";
import { ConnectionConfig, Sandbox, SandboxManager } from "@alibaba-group/opensandbox";

const [domain, apiKey, port] = process.argv.slice(2);
const connectionConfig = new ConnectionConfig({ domain, apiKey, requestTimeoutSeconds: 240 });
const options = { connectionConfig, timeoutSeconds: 600, readyTimeoutSeconds: 240 };
const code = `import os, urllib.request
os.environ.pop("no_proxy", None); os.environ.pop("NO_PROXY", None)
try:
    print(urllib.request.urlopen("http://127.0.0.1:${port}/", timeout=60).read().decode())
except Exception as e:
    print("refused")
`;
const reaches = async (sandbox) => {
  await sandbox.files.writeFiles([{ path: "/tmp/ask.py", data: code }]);
  return (await sandbox.commands.run("python3 /tmp/ask.py", { timeoutSeconds: 120 })).logs.stdout[0].text;
};
const refuses = (status, code) => (error) => error.statusCode === status && error.error.code === code;

const egress = [{ action: "allow", target: "127.0.0.1" }];
const sandbox = await Sandbox.create({ ...options, image: "python:3.12", networkPolicy: { egress } });
assert.deepEqual(await sandbox.getEgressPolicy(), { defaultAction: "deny", egress });
assert.equal(await reaches(sandbox), "reached");
await sandbox.patchEgressRules([{ action: "allow", target: "a.example.com" }, { action: "deny", target: "127.0.0.1" }]);
assert.equal(await reaches(sandbox), "refused");
await sandbox.patchEgressRules(egress);
assert.equal(await reaches(sandbox), "reached");
assert.deepEqual((await sandbox.getEgressPolicy()).egress.map((rule) => rule.target), ["a.example.com", "127.0.0.1"]);
await assert.rejects(sandbox.patchEgressRules([{ action: "allow", target: "evil.example" }]), refuses(403, "SB012"));
await sandbox.deleteEgressRules(["127.0.0.1", "a.example.com", "nothing.example"]);
assert.equal(await reaches(sandbox), "refused");
assert.deepEqual(await sandbox.getEgressPolicy(), { defaultAction: "deny", egress: [] });
// What goes on from it reaches no more than it did.
const manager = SandboxManager.create({ connectionConfig });
const { id } = await manager.createSnapshot(sandbox.id);
const copy = await Sandbox.create({ ...options, snapshotId: id });
assert.equal(await reaches(copy), "refused");
for (const one of [copy, sandbox]) await one.kill();
await manager.deleteSnapshot(id);
process.exit(0);
