// The agent over MCP, with its TypeScript SDK. usage: node mcp.mjs, with BROKER_URL and BROKER_TOKEN.
import { randomUUID } from "node:crypto";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { token, url, work } from "./agent.mjs";

const client = new Client({ name: "agent", version: "1" });
const headers = { Authorization: "Bearer " + token };
await client.connect(new StreamableHTTPClientTransport(new URL(url + "/mcp"), { requestInit: { headers } }));
const session = randomUUID();
const call = async (name, args) => {
  const { isError, content, structuredContent } = await client.callTool({ name, arguments: { session, ...args } });
  if (isError) throw new Error(content[0].text);
  return structuredContent;
};

await call("create_session", { template: "python" });
await work({
  upload: (path, content) => call("write_file", { path, content }),
  run: async (code) => {
    const { status, stdout, stderr } = await call("run_code", { language: "python", context: "default", code });
    return { failed: status !== "succeeded", said: status === "succeeded" ? stdout : stderr };
  },
  download: async (path) => (await call("read_file", { path })).content,
  destroy: () => call("end_session").then(() => client.close()),
});
