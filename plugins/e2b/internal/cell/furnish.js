// Gives a new kernel its environment and its directory, and has it write down how it ends,
// for nobody else tells.
((encoded) => {
  const { env, cwd, end } = JSON.parse(Buffer.from(encoded, 'base64').toString());
  Object.assign(process.env, env);
  try {
    process.chdir(cwd);
  } catch {} // it may have been removed
  const { unlinkSync, writeFileSync } = require('fs');
  try {
    unlinkSync(end); // how the kernel before has ended
  } catch {}
  process.on('exit', (code) => {
    try {
      writeFileSync(end, `exit ${code}`);
    } catch {}
  });
  if (process.report) {
    const cut = end.lastIndexOf('/');
    Object.assign(process.report, { reportOnFatalError: true, directory: end.slice(0, cut), filename: end.slice(cut + 1) });
  }
})
