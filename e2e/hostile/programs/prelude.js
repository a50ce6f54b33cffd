// A module has no require.
var fs = typeof require === 'function' ? require('fs') : undefined;

// attempt prints what comes of an attempt: the code of the error, or SUCCEEDED.
function attempt(name, action) {
  try {
    const value = action();
    console.log(name, 'SUCCEEDED');
    return value;
  } catch (e) {
    console.log(name, e.code ?? e.name);
  }
}

// found is what a probe reports.
function found(what) {
  console.log(what ? `found ${what}` : 'clean');
}

// hold tells that what is planted is there, and waits until the others are done.
function hold() {
  if (process.env.TOGETHER) return;
  fs.writeFileSync('/workspace/.holding', '');
  while (!fs.existsSync('/workspace/.release')) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
}

