// must: Node resolves none either
// status: succeeded
// stdout: (lookup EAI_AGAIN|lookup ENOTFOUND)\nquery E[A-Z]+
const dns = require('dns');
dns.lookup('example.com', (e) => {
  console.log('lookup', e?.code ?? 'SUCCEEDED');
  const resolver = new dns.Resolver({ timeout: 500, tries: 1 });
  resolver.resolve4('example.com', (e) => console.log('query', e?.code ?? 'SUCCEEDED'));
});
