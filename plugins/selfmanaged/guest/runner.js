// Runs one piece of code in a fresh interpreter, or becomes a context. Started ahead
// by the guest as an unprivileged user: reads a line of JSON, the request, from
// descriptor 3 and reports on descriptor 4, as the guest's package frames describes
// it. Standard output and error belong to the code alone.
'use strict';
const fs = require('node:fs');
const util = require('node:util');
const vm = require('node:vm');
const path = require('node:path');
const { Module } = require('node:module');
const { pathToFileURL } = require('node:url');
const { exportedMain, express } = require(path.join(__dirname, 'returned.js'));

const WORKSPACE = '/workspace';
const FILENAME = path.join(WORKSPACE, 'main.js');
const MODULE_FILE = process.argv[2]; // nobody had it before; the guest removes it
const CAPTURE = '__sandbox_main';
const TRAILER = `\n;globalThis.${CAPTURE}?.(typeof main === 'undefined' ? undefined : main);`;

// The messages with which V8 refuses a module that is compiled as a script.
const MODULE_SYNTAX = [
  'Cannot use import statement outside a module',
  "Unexpected token 'export'",
  "Cannot use 'import.meta' outside a module",
  'await is only valid in async functions and the top level bodies of modules',
];

// isModule tells a module from a script. A script that does not compile throws
// here, before anything was added to it that would show in the error.
function isModule(code) {
  try {
    vm.compileFunction(code, ['exports', 'require', 'module', '__filename', '__dirname'], { filename: FILENAME });
    return false;
  } catch (e) {
    if (e instanceof SyntaxError && MODULE_SYNTAX.includes(e.message)) return true;
    throw e;
  }
}

// load runs the code and gives its top-level main and what it exports.
async function load(code) {
  let main;
  Object.defineProperty(globalThis, CAPTURE, {
    configurable: true,
    enumerable: false,
    value: (f) => {
      delete globalThis[CAPTURE];
      main = f;
    },
  });
  if (isModule(code)) {
    // Imports resolve from where the file stands, so it must stand there.
    fs.writeFileSync(MODULE_FILE, code + TRAILER, { flag: 'wx', mode: 0o600 });
    process.argv[1] = MODULE_FILE;
    const namespace = await import(pathToFileURL(MODULE_FILE));
    return { main, exported: namespace };
  }
  const m = new Module(FILENAME, null);
  m.filename = FILENAME;
  m.paths = Module._nodeModulePaths(WORKSPACE);
  require.cache[FILENAME] = m;
  process.mainModule = m;
  m._compile(code + TRAILER, FILENAME);
  m.loaded = true;
  return { main, exported: m.exports };
}

function writeAll(fd, data) {
  for (let at = 0; at < data.length; ) at += fs.writeSync(fd, data, at);
}

// send reports something to the guest.
function send(kind, data, header) {
  const text = JSON.stringify({ kind, length: data?.length ?? 0, ...header });
  writeAll(4, Buffer.concat([Buffer.from(`${text}\n`), data ?? Buffer.alloc(0)]));
}

// readLine reads the request, which ends the line. In a context more follow later.
function readLine(fd) {
  const parts = [];
  for (let part = firstPart; ; part = Buffer.allocUnsafe(1 << 16)) {
    const n = fs.readSync(fd, part);
    if (parts.length === 0 && part[n - 1] === 10) return part.utf8Slice(0, n);
    parts.push(part.subarray(0, n));
    if (n === 0 || part[n - 1] === 10) return Buffer.concat(parts).toString('utf8');
  }
}
const firstPart = Buffer.allocUnsafe(1 << 16);

async function run(request) {
  const { code, arguments: args, env, call_main: callMain, result_limit: limit } = request;
  Object.assign(process.env, env ?? {});
  process.argv = [process.argv[0], FILENAME];
  const loaded = await load(code);
  if (args === null && !callMain) return;
  const main = loaded.main ?? exportedMain(loaded.exported);
  if (typeof main !== 'function') throw new ReferenceError('arguments were given, so the code must define a function main');
  const data = express(await main(args ?? {}), limit);
  send('value', data);
  // main has returned: timers that it left behind do not keep the result waiting.
  exit();
}

// show prints an error as Node shows an uncaught one, without the runner's frames.
function show(error, code) {
  const text = util
    .inspect(error)
    .replaceAll(pathToFileURL(MODULE_FILE).href, FILENAME)
    .replaceAll(MODULE_FILE, FILENAME)
    .replaceAll(/\n +at .*(?:\/run\/sandbox\/|node:internal\/|node:vm:).*?( {)?$/gm, '$1');
  if (!util.types.isNativeError(error)) {
    stderr.write(`Uncaught ${text}\n`);
    return;
  }
  const at = /\/workspace\/main\.js:(\d+):(\d+)/.exec(text);
  const source = at && code.split('\n')[at[1] - 1];
  if (source && !text.startsWith(FILENAME)) {
    stderr.write(`${FILENAME}:${at[1]}\n${source}\n${' '.repeat(at[2] - 1)}^\n\n`);
  }
  stderr.write(`${text}\n`);
}

// What the code may replace, as it is now.
const exit = process.exit;
const { stdout, stderr } = process;
// A pipe takes 64 KiB at once; what is more would be lost in process.exit.
for (const stream of [stdout, stderr]) stream._handle?.setBlocking?.(true);

// What most programs need is loaded before anybody waits for it.
for (const stream of [stdout, stderr]) stream.write('');
util.format('%s', 1);
new vm.Script('');

// Once all code has ended, so has the process: taking apart what is only memory
// takes longer in a sandbox than most programs run. An exception that nobody
// caught is shown by Node itself, after this.
let uncaught = false;
process.once('uncaughtExceptionMonitor', () => {
  uncaught = true;
});
process.on('exit', function last(code) {
  if (uncaught || !process._exiting) return; // the code may emit it, too
  for (const listener of process.rawListeners('exit')) {
    if (listener !== last) listener.call(process, code);
  }
  process.reallyExit(process.exitCode ?? code);
});

// displays shows values beside the output. Its work is done elsewhere, and loaded
// when there is some.
const displays = {
  header: {},
  worker: null,
  limits: null,
  begin(limits) {
    this.limits = limits;
    this.worker?.begin(limits);
  },
  show(kind, value, raw) {
    if (this.worker === null) {
      this.worker = new (require(path.join(__dirname, 'display.js')))((k, data, header) => send(k, data, { ...header, ...this.header }));
      this.worker.begin(this.limits);
    }
    return this.worker.show(kind, value, raw);
  },
};
Object.defineProperty(globalThis, 'display', {
  configurable: true,
  writable: true,
  enumerable: false,
  value: (value, options) => displays.show('display', value, options?.raw),
});

writeAll(4, Buffer.from('R'));
const request = JSON.parse(readLine(3));
if (request.context) {
  require(path.join(__dirname, 'context.js'))(request.context, { send, express, displays, exit, stderr, streams: [stdout, stderr] });
} else {
  once();
}

// once runs the one piece of code.
function once() {
  fs.closeSync(3);
  process.chdir(WORKSPACE);
  displays.begin(request.artifacts);
  // Node would end with success when nothing is left that could go on.
  const unsettled = () => {
    stderr.write('Error: the code awaits something that never comes\n');
    exit(13); // as Node itself does for a module
  };
  process.once('beforeExit', unsettled);
  run(request)
    .finally(() => process.off('beforeExit', unsettled))
    .catch((error) => {
      // Thrown outside of any promise, the code's own handler gets it; and only
      // Node knows where a module does not compile.
      if (process.listenerCount('uncaughtException') > 0 || (error instanceof SyntaxError && process.argv[1] === MODULE_FILE)) {
        setImmediate(() => {
          throw error;
        });
        return;
      }
      show(error, request.code);
      exit(1);
    });
}
