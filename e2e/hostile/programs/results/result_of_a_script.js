// must: a script in JavaScript has no result, whatever was written for one
// status: succeeded
// stdout: ran
fs.writeSync(4, '{"kind": "value", "length": 16}\n{"forged": true}');
console.log('ran');
