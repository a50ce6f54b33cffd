// must: a timeout keeps what JavaScript printed
// status: timeout
// stdout: one\ntwo
// stderr: three
// timeout: 1
console.log('one');
process.stdout.write('two');
process.stderr.write('three');
for (;;) {}
