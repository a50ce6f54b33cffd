// must: Node does not reach the address where clouds keep credentials
// status: succeeded
// stdout: http ENETUNREACH\nfetch ENETUNREACH
const http = require('http');
http.get('http://169.254.169.254/latest/meta-data/', () => console.log('http SUCCEEDED')).on('error', async (e) => {
  console.log('http', e.code);
  await fetch('http://169.254.169.254/').then(
    () => console.log('fetch SUCCEEDED'),
    (e) => console.log('fetch', e.cause?.code),
  );
});
