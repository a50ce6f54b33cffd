// A kernel of the fake: runs cells in one global scope, and tells what they do in lines
// of JSON on descriptor 3, in the words of the code interpreter. Cells come as lines of
// JSON on standard input.
(() => {
'use strict';
const fs = require('node:fs');
const util = require('node:util');
const inspector = require('node:inspector');
const readline = require('node:readline');

const tell = (event) => {
  const data = Buffer.from(JSON.stringify(event) + '\n');
  for (let at = 0; at < data.length; ) at += fs.writeSync(3, data, at);
};
for (const name of ['stdout', 'stderr']) {
  process[name].write = (data, encoding, done) => {
    tell({ type: name, text: data.toString() });
    const f = typeof encoding === 'function' ? encoding : done;
    if (f) setImmediate(f);
    return true;
  };
}
globalThis.require = require;
const session = new inspector.Session();
session.connect();
const post = (method, params) => new Promise((resolve, reject) => session.post(method, params, (error, answer) => (error ? reject(error) : resolve(answer))));

// real is the value behind what the inspector says of it.
let last;
globalThis[Symbol.for('last')] = (value) => { last = value; };
async function real(remote) {
  if (!remote.objectId) return remote.unserializableValue ? eval(remote.unserializableValue) : remote.subtype === 'null' ? null : remote.value;
  await post('Runtime.callFunctionOn', { objectId: remote.objectId, functionDeclaration: "function () { globalThis[Symbol.for('last')](this); }" });
  return last;
}

// A notebook has a console of its own, which it puts back before each cell, and which
// tells what was printed when the cell has ended. It lets a name be declared once.
const notebook = process.argv.includes('notebook');
const declared = new Set();
let held = [];
const { Console } = require('node:console');
const { Writable } = require('node:stream');
const hold = (type) => new Writable({ decodeStrings: true, write: (data, _, done) => { held.push({ type, text: data.toString() }); done(); } });
const own = new Console({ stdout: hold('stdout'), stderr: hold('stderr') });
function twice(code) {
  const names = [...code.matchAll(/^(?:const|let|class) +([\w$]+)/gm)].map((m) => m[1]);
  const known = names.find((name) => declared.has(name));
  if (known === undefined) names.forEach((name) => declared.add(name));
  return known;
}

let turn = Promise.resolve();
async function run(code) {
  if (notebook) {
    const known = twice(code);
    if (known !== undefined) {
      tell({ type: 'error', text: `SyntaxError: Identifier '${known}' has already been declared` });
      tell({ type: 'endOfExecution', status: 'error' });
      return;
    }
    globalThis.console = own;
    held = [];
  }
  // As in a console: await at the top, and names that can be declared again.
  const { result, exceptionDetails } = await post('Runtime.evaluate', { expression: notebook ? code : code.replace(/^const /gm, 'let '), replMode: true, awaitPromise: true, includeCommandLineAPI: false });
  held.forEach(tell);
  const value = exceptionDetails ? await real(exceptionDetails.exception) : await real(result);
  if (exceptionDetails) {
    const native = util.types.isNativeError(value);
    tell({ type: 'error', text: native ? value.stack : String(value) });
  } else if (value !== undefined) {
    tell({ type: 'result', text: util.inspect(value) });
  }
  tell({ type: 'endOfExecution', status: exceptionDetails ? 'error' : 'ok' });
}
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  turn = turn.then(() => run(JSON.parse(line).code));
});
})(); // not in the scope of the cells
