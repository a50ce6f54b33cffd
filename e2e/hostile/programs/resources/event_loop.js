// must: promises that starve everything else are stopped
// status: timeout
// stdout: begun
// timeout: 1
fs.writeSync(1, 'begun\n');
const again = () => Promise.resolve().then(again);
again();
