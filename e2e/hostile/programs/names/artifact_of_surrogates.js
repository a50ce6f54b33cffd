// must: a name of half characters is shown as such
// status: succeeded
// stdout: written
// artifacts: file "artifacts/\x{FFFD}x" text/plain
fs.writeFileSync(Buffer.concat([Buffer.from('artifacts/'), Buffer.from([0xed, 0xa0, 0x80, 0x78])]), '1');
console.log('written');
