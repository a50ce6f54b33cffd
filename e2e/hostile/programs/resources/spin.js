// must: a loop without end in JavaScript is stopped, and its output so far is kept
// status: timeout
// stdout: so far
// timeout: 1
console.log('so far');
for (;;) {}
