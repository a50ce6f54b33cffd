// must: bytes of the guest's own protocol on stderr are output and nothing more
// status: succeeded
// stdout: after
// stderr: (?s)(PRI \* HTTP/2\.0.*)+
const frame = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from([0, 0, 8, 7, 0, 0, 0, 0, 0]), Buffer.alloc(8)]);
for (let i = 0; i < 10; i++) fs.writeSync(2, frame);
console.log('after');
