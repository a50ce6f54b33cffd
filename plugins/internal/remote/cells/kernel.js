// The interpreter of kernel.py, for JavaScript. V8's own mode for consoles evaluates the
// code: let and const may be declared again, and await stands anywhere.
//
// This file stands behind returned.js of the SDK, which has express and exportedMain.
'use strict';
const fs = require('node:fs');
const inspector = require('node:inspector');
const path = require('node:path');
const readline = require('node:readline');
const util = require('node:util');
const { Console } = require('node:console');
const { Module } = require('node:module');
const { Writable } = require('node:stream');

const ROOT = '/tmp/.sandbox-broker';
const TAKE = '__sandbox_take'; // a global by which a value gets here; there only for a moment
const MOST_SHOWN = 8 << 20; // bytes of a form of a value

const files = { stdout: fs.openSync('/dev/null', 'a'), stderr: fs.openSync('/dev/null', 'a') };
const put = (name, data) => {
  for (let at = 0; at < data.length; ) at += fs.writeSync(files[name], data, at);
};
for (const name of ['stdout', 'stderr']) {
  process[name].write = (data, encoding, done) => {
    put(name, typeof data === 'string' ? Buffer.from(data, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(data));
    const f = typeof encoding === 'function' ? encoding : done;
    if (f) setImmediate(f);
    return true;
  };
}
const out = (name) => new Writable({ decodeStrings: true, write: (data, _, done) => { put(name, data); done(); } });
globalThis.console = new Console({ stdout: out('stdout'), stderr: out('stderr') });

const session = new inspector.Session();
session.connect();
const post = (method, params) => new Promise((resolve, reject) => {
  session.post(method, params, (error, result) => (error ? reject(Object.assign(new Error(error.message), error)) : resolve(result)));
});

// valueOf is the value itself that the inspector describes.
const valueOf = async (remote) => {
  if (remote.objectId !== undefined) {
    let value;
    Object.defineProperty(globalThis, TAKE, { configurable: true, enumerable: false, value: (v) => { value = v; } });
    try {
      await post('Runtime.callFunctionOn', { objectId: remote.objectId, functionDeclaration: `function(){'use strict';globalThis.${TAKE}(this)}` });
    } finally {
      delete globalThis[TAKE];
    }
    return value;
  }
  if (remote.unserializableValue !== undefined) {
    const text = remote.unserializableValue;
    return text.endsWith('n') ? BigInt(text.slice(0, -1)) : Number(text);
  }
  return remote.value;
};

const evaluate = async (code, filename) => {
  const expression = `${code}\n//# sourceURL=${filename}`;
  const { result, exceptionDetails: failed } = await post('Runtime.evaluate', { expression, replMode: true, objectGroup: 'cell' });
  if (!failed) return await valueOf(result);
  throw failed.exception ? await valueOf(failed.exception) : new Error(failed.text);
};

const forms = (value) => {
  const found = { 'text/plain': util.inspect(value) };
  if (value !== null && typeof value === 'object' && (Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype)) {
    try {
      found['application/json'] = JSON.stringify(value);
    } catch {} // it has no such form
  }
  return found;
};

const shown = (value) => {
  const all = {};
  for (const [mime, text] of Object.entries(forms(value))) {
    const data = Buffer.from(text);
    if (data.length > MOST_SHOWN) process.stderr.write(`a value of ${data.length} bytes is too large to be shown as ${mime}\n`);
    else all[mime] = data.toString('base64');
  }
  return { main: true, forms: all };
};

// told is an error as Node shows an uncaught one, without this file's frames.
const told = (error) => {
  let text = 'an error that cannot be shown';
  try {
    text = util.inspect(error);
  } catch {}
  text = text.split('\n').filter((line) => !/^ +at .*(\/program\.js|node:)/.test(line)).join('\n');
  const native = util.types.isNativeError(error);
  return { name: native ? String(error.name) : 'Error', value: native ? String(error.message) : text, traceback: native ? text : `Uncaught ${text}` };
};

let late = null; // the outcome of the cell that runs, for what is thrown outside of it
for (const event of ['uncaughtException', 'unhandledRejection']) {
  process.on(event, (error) => {
    if (late) late.error ??= told(error);
    else put('stderr', Buffer.from(told(error).traceback + '\n'));
  });
}

let count = 0;
const cell = async (request, answer) => {
  if (request.artifacts) {
    try { fs.mkdirSync(request.artifacts); } catch {} // it is there, or something else of that name
  }
  const before = Object.fromEntries(Object.keys(request.env).map((name) => [name, process.env[name]]));
  Object.assign(process.env, request.env);
  try {
    if (request.arguments === null) {
      count += 1;
      const value = await evaluate(request.code, `cell-${count}.js`);
      if (value !== undefined && !request.code.trimEnd().endsWith(';')) answer.values.push(shown(value));
      return;
    }
    const main = (await evaluate("typeof main === 'function' ? main : undefined", 'main')) ?? exportedMain(globalThis.module.exports);
    if (typeof main !== 'function') throw new ReferenceError('arguments were given, so the code must define a function main');
    answer.main = express(await main(JSON.parse(request.arguments)), request.limit).toString();
  } finally {
    for (const [name, value] of Object.entries(before)) {
      if (process.env[name] !== request.env[name]) continue; // the code has changed it
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
};

const write = (file, value) => {
  fs.writeFileSync(`${file}.new`, JSON.stringify(value));
  fs.renameSync(`${file}.new`, file);
};

const run = async (name) => {
  const place = `${ROOT}/${name}`;
  const began = performance.now();
  const request = JSON.parse(fs.readFileSync(`${place}/request`, 'utf8'));
  fs.unlinkSync(`${place}/request`); // its variables are for this code alone
  for (const stream of Object.keys(files)) {
    fs.closeSync(files[stream]);
    files[stream] = fs.openSync(`${place}/${stream}.0`, 'a');
  }
  const answer = { values: [] };
  late = answer;
  try {
    await cell(request, answer);
  } catch (error) {
    answer.error = told(error);
  }
  late = null;
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  write(`${place}/result`, answer);
  const size = (stream) => fs.statSync(`${place}/${stream}.0`).size;
  write(`${place}/done`, { exit: 0, reason: '', seconds: (performance.now() - began) / 1000, ended: Date.now() / 1000, stdout: size('stdout'), stderr: size('stderr') });
};

// The globals that a script has in Node.
const home = new Module(path.join(process.cwd(), 'cell.js'), null);
home.filename = home.id;
home.paths = Module._nodeModulePaths(process.cwd());
home._compile('exports.require = require;', home.id);
const { require: requireThere } = home.exports;
home.exports = {};
for (const [name, value] of Object.entries({ require: requireThere, module: home, exports: home.exports })) {
  Object.defineProperty(globalThis, name, { configurable: true, writable: true, enumerable: false, value });
}
process.argv = [process.argv[0]];

// What the code reads is at its end, and what it starts inherits no requests.
const requests = readline.createInterface({ input: process.stdin });
let queue = Promise.resolve();
requests.on('line', (line) => { queue = queue.then(() => run(line)); });
requests.on('close', () => process.exit(0));
