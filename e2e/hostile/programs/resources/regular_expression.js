// must: a regular expression that never comes back is stopped
// status: timeout
// stdout: matching
// timeout: 1
fs.writeSync(1, 'matching\n');
/^(a+)+$/.test('a'.repeat(40) + '!');
