// must: a debugger that is opened in Node ends with its execution
// status: succeeded
// stdout: open true
// stderr: (?s).*
const inspector = require('inspector');
inspector.open(47113, '127.0.0.1');
console.log('open', !!inspector.url());
// --- next execution
// status: succeeded
// stdout: clean
// control: together
const s = require('net').connect(47113, '127.0.0.1');
s.on('connect', () => { found('a debugger'); s.destroy(); });
s.on('error', () => found(''));
