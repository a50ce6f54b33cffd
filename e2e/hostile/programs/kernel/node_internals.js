// must: Node's own bindings are no way to more rights
// status: succeeded
// stdout: uid (EPERM|ERR_.*)\ngroups (EPERM|ERR_.*)\naddon ERR_DLOPEN_FAILED\nkill EPERM
attempt('uid', () => process.setuid(0));
attempt('groups', () => process.setgroups([0]));
fs.copyFileSync('/etc/passwd', '/tmp/addon.node');
attempt('addon', () => process.dlopen({ exports: {} }, '/tmp/addon.node'));
fs.unlinkSync('/tmp/addon.node');
attempt('kill', () => process.kill(1, 'SIGKILL'));
