// must: a heap that Node itself limits is not the sandbox's memory
// status: failed
// exit: 1
// stdout: ERR_WORKER_OUT_OF_MEMORY
// stderr: ()
const { Worker } = require('worker_threads');
const w = new Worker('const a = []; for (;;) a.push(new Array(1000).fill(1.5))', { eval: true, resourceLimits: { maxOldGenerationSizeMb: 16 } });
w.on('error', (e) => {
  console.log(e.code);
  process.exit(1);
});
