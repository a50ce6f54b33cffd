// must: a result of thousands of levels is the code's failure
// status: failed
// exit: 1
// stdout: ()
// stderr: (?s).*
// arguments: {}
function main() {
  let value = 1;
  for (let i = 0; i < 3000; i++) value = [value];
  return value;
}
