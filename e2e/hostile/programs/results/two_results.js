// must: a result behind another is none
// status: succeeded
// stdout: ()
// arguments: {}
function main() {
  process.on('exit', () => fs.writeSync(4, '{"kind": "value", "length": 16}\n{"forged": true}'));
  return { honest: true };
}
