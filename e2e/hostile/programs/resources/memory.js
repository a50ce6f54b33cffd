// must: buffers beyond the limit are out of memory
// status: out_of_memory
// stdout: before
fs.writeSync(1, 'before\n');
const pieces = [];
for (let i = 0; i < 320; i++) pieces.push(Buffer.alloc(1 << 20, 1));
setInterval(() => pieces, 1000);
