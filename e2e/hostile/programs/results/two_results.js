// must: a result behind another is none
// status: succeeded
// stdout: ()
// arguments: {}
function main() {
  process.on('exit', () => fs.writeSync(4, '{"forged": true}'));
  return { honest: true };
}
