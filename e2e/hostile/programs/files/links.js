// must: Node's own file functions lead nowhere else
// status: succeeded
// stdout: link ENOENT\nreal ENOENT\ncopy (EACCES|ENOENT)\nproc EACCES\nwatch ENOENT
const canary = process.env.CANARY_FILE;
fs.symlinkSync('/proc/self/root' + canary, '/tmp/js-link');
attempt('link', () => fs.readFileSync('/tmp/js-link'));
attempt('real', () => fs.realpathSync('/tmp/js-link'));
fs.unlinkSync('/tmp/js-link');
attempt('copy', () => fs.cpSync('/proc/1/root/etc', '/tmp/copied', { recursive: true }));
attempt('proc', () => fs.readdirSync('/proc/1/cwd/'));
attempt('watch', () => fs.watch(canary));
