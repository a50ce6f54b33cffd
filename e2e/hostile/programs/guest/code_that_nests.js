// must: code that nests beyond all bounds does not end the guest, which reads it
// status: failed
// exit: 1
// stdout: ()
// stderr: (?s).*
const source = '['.repeat(100000);
eval(source);
