// must: what a JavaScript main returns is the result
// status: succeeded
// stdout: ()
// arguments: {"a": 1}
// result: {"a":2}
function main({ a }) {
  return { a: a + 1 };
}
