// Uses the signed addresses of files as the SDKs make them, untouched, where the door has a
// listener of its own: they are at its root.
// usage: node signed.mjs URL KEY SDK; SDK is e2b or e2b-before.
import assert from "node:assert/strict";

const [url, apiKey, sdk] = process.argv.slice(2);
const { Sandbox } = await import(sdk);
const options = { apiKey, apiUrl: url, sandboxUrl: url, timeoutMs: 600_000, requestTimeoutMs: 240_000 }; // for a slow machine
const formOf = (text) => {
  const form = new FormData();
  form.append("file", new Blob([text]), "signed.txt");
  return form;
};
const send = (address, text) => fetch(address, { method: "POST", body: formOf(text) });

const sandbox = await Sandbox.create(options);
const other = await Sandbox.create(options);
try {
  const up = await sandbox.uploadUrl("signed.txt", { useSignatureExpiration: 600 });
  assert.equal(new URL(up).origin + new URL(up).pathname, url + "/files");
  assert.equal((await send(up, "by a signature")).status, 200);
  assert.equal(await sandbox.files.read("signed.txt"), "by a signature");
  await assert.rejects(other.files.read("signed.txt"), /not/i, "the signature leads to one sandbox");

  const down = await sandbox.downloadUrl("signed.txt", { useSignatureExpiration: 600 });
  assert.equal(await (await fetch(down)).text(), "by a signature");
  assert.equal((await send(down, "overwritten")).status, 401, "one to read writes nothing");
  assert.equal((await fetch(up)).status, 401, "one to write reads nothing");
  for (const [name, value] of [["path", "/etc/passwd"], ["signature", "v1_"], ["signature_expiration", "99999999999"]]) {
    const changed = new URL(down);
    changed.searchParams.set(name, value);
    assert.equal((await fetch(changed)).status, 401, name);
  }
  const endless = new URL(down);
  endless.searchParams.delete("signature_expiration");
  assert.equal((await fetch(endless)).status, 401);
  const past = await sandbox.downloadUrl("signed.txt", { useSignatureExpiration: -60 });
  assert.equal((await fetch(past)).status, 401);

  assert.equal(await sandbox.files.read("signed.txt"), "by a signature");
  await sandbox.kill();
  assert.equal((await fetch(down)).status, 401, "it ends with the sandbox");
} finally {
  await sandbox.kill();
  await other.kill();
}
console.log("done");
