// must: a failure in JavaScript has no result, whatever was written for one
// status: failed
// exit: 3
// stdout: written
// stderr: ()
// arguments: {}
function main() {
  fs.writeSync(4, '{"kind": "value", "length": 16}\n{"forged": true}');
  console.log('written');
  process.exit(3);
}
