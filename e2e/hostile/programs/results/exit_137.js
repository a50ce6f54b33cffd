// must: exit code 137 of Node is not out of memory
// status: failed
// exit: 137
// stdout: ()
// stderr: ()
process.exit(137);
