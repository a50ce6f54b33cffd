// Builds the page into the directory that is named: `npm ci --ignore-scripts && npm run build`.
import { build } from "esbuild";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

const to = process.argv[2];
if (!to) throw new Error("usage: node build.mjs DIRECTORY");
await rm(to, { recursive: true, force: true });
await mkdir(to, { recursive: true });

await build({
  entryPoints: ["src/app.tsx", "src/style.css", "src/docs.ts", "src/docs.css"],
  outdir: to,
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  legalComments: "none",
  chunkNames: "[name]-[hash]",
  jsx: "automatic",
  jsxImportSource: "preact",
  preserveSymlinks: true, // the names of chunks do not depend on where node_modules is
  logLevel: "warning",
});

await cp("node_modules/openapi-explorer/dist/browser/openapi-explorer.min.js", join(to, "openapi-explorer.js"));
await cp("src/index.html", join(to, "index.html"));
await cp("src/docs.html", join(to, "docs.html"));

// What was taken in, and under which terms.
const licenses = [];
for (const [name, file] of [
  ["preact", "LICENSE"], ["uplot", "LICENSE"], ["@xterm/xterm", "LICENSE"], ["@xterm/addon-fit", "LICENSE"],
  ["openapi-explorer", "LICENSE"],
]) {
  const { version } = JSON.parse(await readFile(join("node_modules", name, "package.json"), "utf8"));
  licenses.push(`${name} ${version}: ${file}\n\n${(await readFile(join("node_modules", name, file), "utf8")).trim()}\n`);
}
await writeFile(join(to, "LICENSES.txt"), licenses.join("\n" + "-".repeat(80) + "\n\n"));
