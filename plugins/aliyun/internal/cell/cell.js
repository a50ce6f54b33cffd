// What a kernel needs for executions whose output is seen while they run. It is loaded
// into the kernel once; begin is called before each execution.
//
// From begin on all that the code prints goes to files in the place of the execution:
// package place reads them there. The expression stands behind returned.js of package
// kernelmain.
(require) => {
  'use strict';
  const fs = require('node:fs');
  const { Console } = require('node:console');
  const { Writable } = require('node:stream');
  const ROOT = '/tmp/.sandbox-broker';
  const files = { stdout: -1, stderr: -1 };
  let place = '';
  let before = {};

  const put = (name, data) => {
    for (let at = 0; at < data.length; ) at += fs.writeSync(files[name], data, at);
  };
  for (const name of ['stdout', 'stderr']) {
    process[name].write = (data, encoding, done) => {
      put(name, typeof data === 'string' ? Buffer.from(data, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(data));
      const f = typeof encoding === 'function' ? encoding : done;
      if (f) setImmediate(f);
      return true;
    };
  }
  const out = (name) => new Writable({ decodeStrings: true, write: (data, _, done) => { put(name, data); done(); } });
  const ours = new Console({ stdout: out('stdout'), stderr: out('stderr') });

  const begin = (encoded) => {
    const request = JSON.parse(Buffer.from(encoded, 'base64').toString());
    const old = place;
    fs.mkdirSync(ROOT, { recursive: true });
    try { fs.chmodSync(ROOT, 0o1777); } catch {} // commands may be another user's
    place = `${ROOT}/${request.id}`;
    fs.mkdirSync(place);
    fs.chmodSync(place, 0o777);
    for (const name of ['stdout', 'stderr']) {
      if (files[name] >= 0) fs.closeSync(files[name]);
      files[name] = fs.openSync(`${place}/${name}.0`, 'a', 0o644);
    }
    globalThis.console = ours;
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    before = Object.fromEntries(Object.keys(request.env).map((name) => [name, process.env[name]]));
    Object.assign(process.env, request.env);
    if (request.dir) {
      fs.mkdirSync(request.dir, { recursive: true });
      process.chdir(request.dir);
    }
    if (request.artifacts) {
      try { fs.mkdirSync(request.artifacts); } catch {} // it is there, or something else of that name
    }
    fs.writeFileSync(`${place}/pid`, String(process.pid));
    if (old) fs.rmSync(old, { recursive: true, force: true });
  };

  const call = async (main, encoded) => {
    const { data } = await returned(main, encoded);
    fs.writeFileSync(`${place}/result`, data);
  };
  return { begin, call };
}
