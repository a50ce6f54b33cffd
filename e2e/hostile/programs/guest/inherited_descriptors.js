// must: Node leaves no descriptor open that leads out
// status: succeeded
// stdout: sockets none
// Node's own are its event loop.

const kinds = fs
  .readdirSync('/proc/self/fd')
  .map((fd) => [fd, (() => { try { return fs.readlinkSync(`/proc/self/fd/${fd}`); } catch { return ''; } })()])
  .filter(([fd, to]) => +fd > 4 && !/^(anon_inode:|pipe:|\/dev\/null|\/proc\/\d+\/fd|$)/.test(to));
console.log('sockets', kinds.length ? kinds : 'none');
