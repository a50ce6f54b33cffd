// must: two executions of Node never have the same random numbers
// status: succeeded
// stdout: 0\.[0-9]+ .*
console.log(Math.random(), require('crypto').randomUUID(), process.hrtime.bigint());
// --- next execution
// status: succeeded
// stdout: same \[\]
const theirs = process.env.PLANTED.split(' ');
console.log('same', [String(Math.random()), require('crypto').randomUUID()].filter((m) => theirs.includes(m)));
