// must: recursion without end is an error in JavaScript
// status: failed
// exit: 1
// stdout: ()
// stderr: (?s).*RangeError: Maximum call stack size exceeded.*
function deeper() {
  return deeper() + 1;
}
deeper();
