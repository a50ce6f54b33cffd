// must: the file of a module that was stopped is not left for the next execution to read
// status: timeout
// stdout: running
// timeout: 1
import { writeSync } from 'node:fs';
writeSync(1, 'running\n');
for (;;) {}
// --- next execution
// status: succeeded
// stdout: \[ 'artifacts' \]
console.log(fs.readdirSync('/workspace'));
