// must: what a JavaScript main prints is not what it returns
// status: succeeded
// stdout: \{"forged":true\}
// result: {"honest":true}
// arguments: {}
function main() {
  console.log('{"forged":true}');
  return { honest: true };
}
