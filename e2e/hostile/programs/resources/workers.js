// must: worker threads that spin are stopped at the time limit
// status: timeout
// stdout: begun
// timeout: 2
const { Worker } = require('worker_threads');
for (let i = 0; i < 4; i++) new Worker('for (;;) {}', { eval: true });
fs.writeSync(1, 'begun\n');
for (;;) {}
