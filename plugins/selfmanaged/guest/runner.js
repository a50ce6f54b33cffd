// Runs one piece of code in a fresh interpreter. Started ahead by the guest as an
// unprivileged user: reads one JSON request from descriptor 3 and reports main's
// return value as JSON on descriptor 4. Standard output and error belong to the
// code alone.
'use strict';
const fs = require('node:fs');
const util = require('node:util');
const vm = require('node:vm');
const path = require('node:path');
const { Module } = require('node:module');
const { pathToFileURL } = require('node:url');

const WORKSPACE = '/workspace';
const FILENAME = path.join(WORKSPACE, 'main.js');
const CAPTURE = '__sandbox_main';
const TRAILER = `\n;globalThis.${CAPTURE}?.(typeof main === 'undefined' ? undefined : main);`;

// The messages with which V8 refuses a module that is compiled as a script.
const MODULE_SYNTAX = [
  'Cannot use import statement outside a module',
  "Unexpected token 'export'",
  "Cannot use 'import.meta' outside a module",
  'await is only valid in async functions and the top level bodies of modules',
];

function isModule(code) {
  try {
    new vm.Script(Module.wrap(code), { filename: FILENAME });
  } catch (e) {
    return e instanceof SyntaxError && MODULE_SYNTAX.includes(e.message);
  }
  return false;
}

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
    const file = path.join(WORKSPACE, `.main-${process.pid}-${Date.now()}.mjs`);
    fs.writeFileSync(file, code + TRAILER);
    const remove = () => fs.rmSync(file, { force: true });
    process.once('exit', remove);
    const namespace = await import(pathToFileURL(file));
    remove();
    return main ?? namespace.main ?? namespace.default;
  }
  const m = new Module(FILENAME, null);
  m.filename = FILENAME;
  m.paths = Module._nodeModulePaths(WORKSPACE);
  require.cache[FILENAME] = m;
  process.mainModule = m;
  m._compile(code + TRAILER, FILENAME);
  m.loaded = true;
  const exported = m.exports;
  return main ?? (typeof exported === 'function' ? exported : exported?.main);
}

function encode(value, limit) {
  let text;
  try {
    text = JSON.stringify(value === undefined ? null : value, (key, v) => {
      if (typeof v === 'number' && !Number.isFinite(v)) throw new TypeError(`${v} is not JSON`);
      return v;
    });
  } catch (e) {
    throw new TypeError(`main must return something that JSON can express: ${e.message}`);
  }
  if (text === undefined) throw new TypeError(`main must return something that JSON can express, not a ${typeof value}`);
  const data = Buffer.from(text);
  if (data.length > limit) throw new RangeError(`main returned ${data.length} bytes of JSON, more than the limit of ${limit}`);
  return data;
}

function writeAll(fd, data) {
  for (let at = 0; at < data.length; ) at += fs.writeSync(fd, data, at);
}

async function run(request) {
  const { code, arguments: args, env, call_main: callMain, result_limit: limit } = request;
  Object.assign(process.env, env ?? {});
  process.argv = [process.argv[0], FILENAME];
  const main = await load(code);
  if (args === null && !callMain) return;
  if (typeof main !== 'function') throw new ReferenceError('arguments were given, so the code must define a function main');
  const data = encode(await main(args ?? {}), limit);
  writeAll(4, data);
  // main has returned: timers that it left behind do not keep the result waiting.
  process.exit();
}

// show prints an error as Node shows an uncaught one, without the runner's frames.
function show(error, code) {
  if (typeof error?.stack !== 'string') {
    console.error('Uncaught', error);
    return;
  }
  const stack = error.stack
    .split('\n')
    .filter((line) => !/^\s+at .*(\/run\/sandbox\/|node:internal\/|node:vm:)/.test(line))
    .join('\n');
  const at = /\/workspace\/main\.js:(\d+):(\d+)/.exec(stack);
  const source = at && code.split('\n')[at[1] - 1];
  if (source && !stack.startsWith('/workspace/')) {
    console.error(`${FILENAME}:${at[1]}\n${source}\n${' '.repeat(at[2] - 1)}^\n`);
  }
  const rest = Object.keys(error).length > 0 ? ` ${util.inspect({ ...error })}` : '';
  console.error(stack + rest);
}

writeAll(4, Buffer.from('R'));
const request = JSON.parse(fs.readFileSync(3, 'utf8'));
fs.closeSync(3);
process.chdir(WORKSPACE);
run(request).catch((error) => {
  if (process.listenerCount('uncaughtException') > 0) {
    setImmediate(() => {
      throw error; // outside of any promise, so that the code's own handler gets it
    });
    return;
  }
  show(error, request.code);
  process.exit(1);
});
