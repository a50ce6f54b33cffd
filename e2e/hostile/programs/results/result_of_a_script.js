// must: a script in JavaScript has no result: the way for one is closed before it runs
// status: succeeded
// stdout: write EBADF\nran
attempt('write', () => fs.writeSync(4, '{"forged": true}'));
console.log('ran');
