// Does with a cell what IJavascript does: evaluates it in the global scope and waits
// for the promise that it gives. It runs the cells that are named, one after the
// other, and looks whether the kernel is what it was.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const vm = require('node:vm');

globalThis.require = require;
process.on('uncaughtException', (error) => console.error('the kernel caught', error));
const state = () => ({
  env: { ...process.env }, cwd: process.cwd(), argv: process.argv, exit: process.exit, exitCode: process.exitCode,
  names: Object.getOwnPropertyNames(globalThis), handlers: process.rawListeners('uncaughtException'), exits: process.rawListeners('exit'), setTimeout, setInterval,
});
const alive = setInterval(() => {}, 1 << 30);
(async () => {
  process.stdout.write('');
  for (const name of process.argv.slice(2)) {
    const before = state();
    const value = await vm.runInThisContext(fs.readFileSync(name, 'utf8'));
    assert.strictEqual(value, undefined);
    assert.deepStrictEqual(state(), before);
  }
  clearInterval(alive);
})().catch((error) => {
  console.error('the kernel is not what it was:', error);
  process.exit(1);
});
