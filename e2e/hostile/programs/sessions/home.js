// must: settings below the home directory are of one session
// status: succeeded
// stdout: planted
for (const name of ['.npmrc', '.node_repl_history', '.bashrc', '.config/x', '.cache/x', '.local/x']) {
  fs.mkdirSync(require('path').dirname(`${process.env.HOME}/${name}`), { recursive: true });
  fs.writeFileSync(`${process.env.HOME}/${name}`, 'secret');
}
console.log('planted');
// --- another session
// status: succeeded
// stdout: clean
// control: session
found(fs.readdirSync(process.env.HOME).filter((name) => name !== 'artifacts').join(' '));
