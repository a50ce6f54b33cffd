// Has a sandbox reach what its creator and its owner say, by E2B's SDK.
// usage: node network.mjs URL KEY PORT; PORT of 127.0.0.1 is what the tenant may reach. Exits
// with 0 if all is as it should be.
import assert from "node:assert/strict";
import { ALL_TRAFFIC, Sandbox } from "e2b";

const [url, apiKey, port] = process.argv.slice(2);
const options = { apiKey, apiUrl: url, sandboxUrl: url, requestTimeoutMs: 240_000, timeoutMs: 600_000 };
const code = `import os, urllib.request
os.environ.pop("no_proxy", None); os.environ.pop("NO_PROXY", None)
try:
    print(urllib.request.urlopen("http://127.0.0.1:${port}/", timeout=60).read().decode())
except Exception as e:
    print("refused")
`;
const reaches = async (sandbox) => {
  await sandbox.files.write("ask.py", code);
  return (await sandbox.commands.run("python3 ask.py", { timeoutMs: 120_000 })).stdout;
};

const sandbox = await Sandbox.create({ ...options, network: { allowOut: ["127.0.0.1"], denyOut: [ALL_TRAFFIC] } });
assert.equal(await reaches(sandbox), "reached\n");
assert.deepEqual((await sandbox.getInfo()).network.allowOut, ["127.0.0.1"]);
await sandbox.updateNetwork({ allowOut: ["a.example.com"], denyOut: [ALL_TRAFFIC] });
assert.equal(await reaches(sandbox), "refused\n");
await sandbox.updateNetwork({});
assert.equal(await reaches(sandbox), "reached\n");
await sandbox.updateNetwork({ denyOut: [ALL_TRAFFIC] });
assert.equal(await reaches(sandbox), "refused\n");
await assert.rejects(sandbox.updateNetwork({ allowOut: ["evil.example"], denyOut: [ALL_TRAFFIC] }), /allowOut.*SB012/s);
await assert.rejects(sandbox.updateNetwork({ denyOut: ["192.0.2.1"] }), /denyOut.*SB010/s);
// What goes on from it reaches no more than it did.
const { snapshotId } = await sandbox.createSnapshot();
const copy = await Sandbox.create(snapshotId, options);
assert.equal(await reaches(copy), "refused\n");
for (const one of [copy, sandbox]) await one.kill();
await Sandbox.deleteSnapshot(snapshotId, options);
const shut = await Sandbox.create({ ...options, allowInternetAccess: false });
assert.equal(await reaches(shut), "refused\n");
await shut.kill();
process.exit(0); // the SDK waits for its own time limits
