// Runs code by the contract: code, arguments ("-" for none) and result are files.
const fs = require('fs');
const vm = require('vm');
const {pathToFileURL} = require('url');

const [codePath, argumentsPath, resultPath] = process.argv.slice(2);
const code = fs.readFileSync(codePath, 'utf8');
globalThis.require = require;
globalThis.module = {exports: {}};
globalThis.exports = globalThis.module.exports;

const given = argumentsPath !== '-';
const called = /\bmain\s*\(/.test(code.replace(/function\s+main\s*\(/g, ''));
(async () => {
  let exported;
  if (/^export /m.test(code)) {
    fs.writeFileSync(codePath + '.mjs', code);
    exported = await import(pathToFileURL(codePath + '.mjs'));
  } else {
    vm.runInThisContext(code, {filename: 'main.js'});
    exported = globalThis.module.exports;
  }
  if (!given && (typeof globalThis.main !== 'function' || called)) return;
  const main = [globalThis.main, exported, exported.main, exported.default, exported.default?.main].find((f) => typeof f === 'function');
  if (!main) throw new TypeError('there are arguments, and the code defines no main');
  const args = given ? [JSON.parse(fs.readFileSync(argumentsPath, 'utf8'))] : [];
  const value = await main(...args);
  fs.writeFileSync(resultPath, JSON.stringify(value === undefined ? null : value));
})();
