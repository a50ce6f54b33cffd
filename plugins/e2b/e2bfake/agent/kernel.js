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

// excerpt is the line that stands before a stack.
const excerpt = (code) => `evalmachine.<anonymous>:1\n${code.split('\n')[0]}\n^\n\n`;

// looking says that the value of a cell is not known yet: if it is a promise that is
// rejected, somebody is about to see that.
let looking = false;
process.on('unhandledRejection', (error) => {
  if (!looking) throw error;
});

let count = 0;
const declared = new Set();
let turn = Promise.resolve();
async function run(code) {
  tell({ type: 'number_of_executions', execution_count: ++count });
  // There is await at the top, and a name that was declared cannot be declared again.
  const names = [...code.matchAll(/^(?:const|let|class)\s+([\w$]+)/gm)].map((match) => match[1]);
  const twice = names.find((name) => declared.has(name));
  if (twice) {
    tell({ type: 'error', name: 'SyntaxError', value: `Identifier '${twice}' has already been declared`, traceback: `SyntaxError: Identifier '${twice}' has already been declared` });
    tell({ type: 'end_of_execution' });
    return;
  }
  looking = true;
  const { result, exceptionDetails } = await post('Runtime.evaluate', { expression: code.replace(/^const /gm, 'let '), replMode: true, awaitPromise: true, includeCommandLineAPI: false });
  if (!exceptionDetails || exceptionDetails.exception.className !== 'SyntaxError') names.forEach((name) => declared.add(name));
  let failed = Boolean(exceptionDetails);
  let value;
  try {
    value = await real(failed ? exceptionDetails.exception : result); // a promise is awaited
  } catch (error) {
    failed = true;
    value = error;
  }
  looking = false;
  if (failed) {
    const native = util.types.isNativeError(value);
    tell({ type: 'error', name: native ? value.name : 'Error', value: native ? value.message : String(value), traceback: native ? excerpt(code) + value.stack : String(value) });
  } else if (value !== undefined) {
    tell({ type: 'result', text: typeof value === 'string' ? value : util.inspect(value), extra: {}, is_main_result: true });
  }
  tell({ type: 'end_of_execution' });
}
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  turn = turn.then(() => run(JSON.parse(line).code));
});
})(); // not in the scope of the cells
