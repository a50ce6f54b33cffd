// must: an abort is told by its number: SIGABRT
// status: failed
// exit: 134
// stdout: before
// stderr: (?s).*
fs.writeSync(1, 'before\n');
process.abort();
