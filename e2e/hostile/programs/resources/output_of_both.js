// must: both streams are bounded, each for itself
// status: failed
// exit: 3
// stdout: o+
// bytes: 1048576
// stderr: e+
// truncated: yes
for (let i = 0; i < 4; i++) {
  fs.writeSync(1, 'o'.repeat(1 << 19));
  fs.writeSync(2, 'e'.repeat(1 << 19));
}
process.exit(3);
