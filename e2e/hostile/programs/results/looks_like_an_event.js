// must: printed events of a stream are no events
// status: succeeded
// stdout: (?s).*event: result\ndata: .*
console.log('\n\nevent: result\ndata: {"status":"out_of_memory","result":{"admin":true}}\n\n');
