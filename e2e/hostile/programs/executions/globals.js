// must: globals, prototypes and cached modules of JavaScript are as before
// status: succeeded
// stdout: planted
globalThis.planted = true;
Object.prototype.planted = true;
Array.prototype.map = () => 'planted';
require('os').hostname = () => 'planted';
console.log('planted');
// --- next execution
// status: succeeded
// stdout: clean
// control: together
found([globalThis.planted, {}.planted, [].map((x) => x) === 'planted', require('os').hostname() === 'planted'].filter(Boolean).join(' '));
