// Uses programs that listen in a sandbox, by E2B's published SDKs, which know a domain
// (E2B_DOMAIN) and a key (E2B_API_KEY).
// usage: node hosts.mjs SDK; SDK is e2b or e2b-before. All hosts below e2b.test are this
// machine, as a wildcard in the DNS would have it.
import assert from "node:assert/strict";
import dns from "node:dns";

const lookup = dns.lookup;
dns.lookup = (host, ...rest) => lookup(host.endsWith(".e2b.test") ? "127.0.0.1" : host, ...rest);

const [sdk] = process.argv.slice(2);
const { Sandbox } = await import(sdk);
const { Sandbox: Interpreter } = await import("@e2b/code-interpreter");
const { WebSocket } = await import("undici");
const options = { timeoutMs: 600_000, requestTimeoutMs: 240_000 }; // for a slow machine

// The program answers what it is asked, and one message of a WebSocket.
const program = `
import base64, hashlib, http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        if self.headers["Transfer-Encoding"] == "chunked":
            body = b""
            while n := int(self.rfile.readline(), 16):
                body += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        text = json.dumps({"asked": self.command + " " + self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "size": len(body)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        if self.headers["Upgrade"] != "websocket":
            return self.do_POST()
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        head = self.rfile.read(2)
        size = head[1] & 127
        mask = self.rfile.read(4)
        text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
        reply = b"you said " + text
        self.wfile.write(bytes([0x81, len(reply)]) + reply)
        self.rfile.read(1)
        self.close_connection = True
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`;

// serve runs it, and waits until it listens.
const serve = async (sandbox) => {
  await sandbox.files.write("program.py", program);
  await sandbox.commands.run("python3 program.py", { background: true, timeoutMs: 0 });
  await sandbox.commands.run("until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.1; done", { timeoutMs: 120_000 });
};

const talk = (address, headers) =>
  new Promise((done, failed) => {
    const socket = new WebSocket(address, { headers });
    socket.onopen = () => socket.send("moin");
    socket.onerror = (event) => failed(event.error ?? new Error("refused"));
    socket.onmessage = (event) => {
      socket.close();
      done(event.data);
    };
  });

const gone = async (response, sandbox, port) => {
  assert.equal(response.status, 502);
  const body = await response.json();
  assert.deepEqual([body.code, body.sandboxId, body.port], [502, sandbox.sandboxId, port]);
};

const useHosts = async () => {
  const sandbox = await Sandbox.create(options);
  try {
    assert.match(sandbox.getHost(8000), /^8000-[a-z0-9]+\.e2b\.test:\d+$/);
    assert.ok(await sandbox.isRunning());
    await serve(sandbox);
    const url = `https://${sandbox.getHost(8000)}`;
    const size = 3_000_000;
    const response = await fetch(url + "/sandboxes/a%2Fb?x=1", { method: "POST", body: new Uint8Array(size), headers: { "x-api-key": process.env.E2B_API_KEY, "e2b-traffic-access-token": sandbox.trafficAccessToken } });
    assert.equal(response.status, 200, "no token is needed");
    const told = await response.json();
    assert.deepEqual([told.asked, told.size, told.headers.host], ["POST /sandboxes/a%2Fb?x=1", size, "localhost:8000"]);
    assert.ok(!JSON.stringify(told).includes(process.env.E2B_API_KEY), "the key stays outside");
    assert.ok(!("e2b-traffic-access-token" in told.headers));
    assert.equal(await talk(url.replace("https", "wss") + "/ws"), "you said moin");
    await gone(await fetch(`https://${sandbox.getHost(8001)}/`), sandbox, 8001);

    // What the SDK signs leads to the host of envd.
    const form = new FormData();
    form.append("file", new Blob(["by a signature"]), "signed.txt");
    assert.equal((await fetch(await sandbox.uploadUrl("signed.txt"), { method: "POST", body: form })).status, 200);
    assert.equal(await (await fetch(await sandbox.downloadUrl("signed.txt"))).text(), "by a signature");
    const shared = await fetch(url.replace(/\/\/.*?\./, "//sandbox.") + "/shared", { headers: { "e2b-sandbox-id": sandbox.sandboxId, "e2b-sandbox-port": "8000" } });
    assert.equal((await shared.json()).asked, "GET /shared");
    assert.equal((await sandbox.getInfo()).sandboxDomain, sandbox.sandboxDomain);
  } finally {
    await sandbox.kill();
  }
  await gone(await fetch(`https://${sandbox.getHost(8000)}/`), sandbox, undefined);
  assert.equal(await sandbox.isRunning(), false);

  const interpreter = await Interpreter.create({ ...options, network: { allowPublicTraffic: false } });
  try {
    assert.equal((await interpreter.runCode("20 + 22")).text, "42");
    assert.ok((await interpreter.listCodeContexts()).length > 0);
    assert.equal((await interpreter.getInfo()).network.allowPublicTraffic, false);
    await serve(interpreter);
    const url = `https://${interpreter.getHost(8000)}`;
    const token = { "e2b-traffic-access-token": interpreter.trafficAccessToken };
    for (const headers of [{}, { "e2b-traffic-access-token": sandbox.trafficAccessToken }, { "x-api-key": process.env.E2B_API_KEY }]) {
      assert.equal((await fetch(url, { headers })).status, 403);
      await assert.rejects(talk(url.replace("https", "wss"), headers));
    }
    assert.equal((await (await fetch(url + "/?a", { headers: token })).json()).asked, "GET /?a");
    assert.equal(await talk(url.replace("https", "wss"), token), "you said moin");
  } finally {
    await interpreter.kill();
  }
};

await useHosts();
console.log("done");
process.exit(0); // the SDK waits for its own time limits
