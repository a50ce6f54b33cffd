// must: a hook of Node at the end has no say on the result of a failure
// status: failed
// exit: 9
// stdout: hook
// stderr: (?s).*Error: mine.*
// arguments: {}
function main() {
  process.on('exit', () => {
    console.log('hook');
    fs.writeSync(4, '{"kind": "value", "length": 16}\n{"forged": true}');
    process.exitCode = 9;
  });
  throw new Error('mine');
}
