// Runs code by the contract: code, arguments ("-" for none) and result are files.
const fs = require('fs');
const vm = require('vm');

const [codePath, argumentsPath, resultPath] = process.argv.slice(2);
const code = fs.readFileSync(codePath, 'utf8');
globalThis.require = require;
vm.runInThisContext(code, {filename: 'main.js'});

const given = argumentsPath !== '-';
const defined = typeof globalThis.main === 'function';
const called = /\bmain\s*\(/.test(code.replace(/function\s+main\s*\(/g, ''));
if (given || (defined && !called)) {
  if (!defined) throw new TypeError('there are arguments, and the code defines no main');
  const args = given ? [JSON.parse(fs.readFileSync(argumentsPath, 'utf8'))] : [];
  Promise.resolve(globalThis.main(...args)).then((value) => {
    fs.writeFileSync(resultPath, JSON.stringify(value === undefined ? null : value));
  });
}
