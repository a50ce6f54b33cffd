// Runs one piece of code as a fresh interpreter would, as the program of a process
// that was started for it. It is evaluated under a
// name of its own, behind returned.js of package returned, and gives a function that is
// called with the request; it must run on Node 18.
(function (require, own, encoded) {
  'use strict';
  const fs = require('node:fs');
  const path = require('node:path');
  const util = require('node:util');
  const vm = require('node:vm');
  const { Module } = require('node:module');
  const { pathToFileURL } = require('node:url');

  const RUNNER = 'sandbox-runner.js';
  const CAPTURE = '__sandbox_main';
  const CHUNK = 2048; // with the marker, a frame is less than a pipe takes at once
  // The messages with which V8 refuses a module that is compiled as a script.
  const MODULE_SYNTAX = [
    'Cannot use import statement outside a module',
    "Unexpected token 'export'",
    "Cannot use 'import.meta' outside a module",
    'await is only valid in async functions and the top level bodies of modules',
  ];

  const request = JSON.parse(Buffer.from(encoded, 'base64').toString());
  const { stdout, stderr } = process; // the code may replace them
  if (own) remove(own); // it has the marker in it

  // remove does what it can: the file may lie where nobody can write.
  function remove(file) {
    try {
      fs.rmSync(file, { force: true });
    } catch {}
  }

  // send tells the provider what main returned, in frames among the output.
  function send(data) {
    const text = data.toString('base64');
    for (let at = 0; at < text.length; at += CHUNK) {
      const last = at + CHUNK >= text.length;
      write(`${request.marker}${last ? '=' : '+'}${text.slice(at, at + CHUNK)};`);
    }
  }

  function write(frame) {
    const data = Buffer.from(frame);
    for (let at = 0; at < data.length; ) {
      try {
        at += fs.writeSync(1, data, at);
      } catch (e) {
        if (e.code !== 'EAGAIN') throw e;
      }
    }
  }

  // isModule tells a module from a script. A script that does not compile throws
  // here, before anything was added to it that would show in the error.
  function isModule(code, file) {
    try {
      vm.compileFunction(code, ['exports', 'require', 'module', '__filename', '__dirname'], { filename: file });
      return false;
    } catch (e) {
      if (e instanceof SyntaxError && MODULE_SYNTAX.includes(e.message)) return true;
      throw e;
    }
  }

  // load runs the code and gives { main, exported }, or a promise of it where the code is
  // a module.
  function load(code, place) {
    const module = isModule(code, place.script);
    let main;
    Object.defineProperty(globalThis, CAPTURE, {
      configurable: true,
      enumerable: false,
      value: (f) => {
        delete globalThis[CAPTURE];
        main = f;
      },
    });
    const trailer = `\n;globalThis.${CAPTURE}?.(typeof main === 'undefined' ? undefined : main);`;
    if (module) {
      // Imports resolve from where the file stands, so it must stand there.
      fs.writeFileSync(place.module, code + trailer, { flag: 'wx', mode: 0o600 });
      process.argv[1] = place.module;
      return importModule(pathToFileURL(place.module).href)
        .finally(() => {
          delete globalThis[CAPTURE];
          place.remove();
        })
        .then((namespace) => ({ main, exported: namespace }));
    }
    const m = new Module(place.script, null);
    m.filename = place.script;
    m.paths = Module._nodeModulePaths(place.dir);
    process.mainModule = m;
    require.cache[place.script] = m;
    try {
      m._compile(code + trailer, place.script);
    } finally {
      delete globalThis[CAPTURE];
    }
    m.loaded = true;
    return { main, exported: m.exports };
  }

  // What was evaluated by itself, as this was, cannot import.
  function importModule(url) {
    const m = new Module(RUNNER, null);
    m._compile('module.exports = (url) => import(url)', path.join(process.cwd(), RUNNER));
    return m.exports(url);
  }

  // show prints an error as Node shows an uncaught one, without the frames of this file.
  function show(error, place) {
    const text = util
      .inspect(error)
      .replaceAll(pathToFileURL(place.module).href, place.script)
      .replaceAll(place.module, place.script)
      .replaceAll(/\n +(?:at .*(?:sandbox-runner\.js|node:internal\/|node:vm:).*?|\.{3} \d+ lines matching .*? \.{3})( {)?$/gm, '$1');
    if (!util.types.isNativeError(error)) {
      stderr.write(`Uncaught ${text}\n`);
      return;
    }
    const found = text.indexOf(`${place.script}:`);
    const at = found >= 0 && /^:(\d+):(\d+)/.exec(text.slice(found + place.script.length));
    const source = at && request.code.split('\n')[at[1] - 1];
    if (source && !text.startsWith(place.script)) {
      stderr.write(`${place.script}:${at[1]}\n${source}\n${' '.repeat(at[2] - 1)}^\n\n`);
    }
    stderr.write(`${text}\n`);
  }

  function places() {
    if (request.dir) {
      fs.mkdirSync(request.dir, { recursive: true });
      process.chdir(request.dir);
      try {
        fs.mkdirSync('artifacts');
      } catch {} // it is there, or something else of that name
    }
    const dir = process.cwd();
    // Nobody else knows the marker yet, but part of it is no secret worth keeping.
    const file = path.join(dir, `.main-${Math.random().toString(36).slice(2)}.mjs`);
    return { dir, script: path.join(dir, 'main.js'), module: file, remove: () => remove(file) };
  }

  // evaluate runs the code and main, and says whether it called main. What it returns
  // is a promise where something is to be awaited.
  function evaluate(place) {
    Object.assign(process.env, request.env);
    process.argv = [process.argv[0], place.script];
    const finish = (value) => {
      send(express(value, request.limit));
      return true;
    };
    const call = (loaded) => {
      if (request.arguments === null && !request.call) return false;
      const main = loaded.main ?? exportedMain(loaded.exported);
      if (typeof main !== 'function') throw new ReferenceError('arguments were given, so the code must define a function main');
      write(`${request.marker}c;`);
      const value = main(request.arguments === null ? {} : JSON.parse(request.arguments));
      return typeof value?.then === 'function' ? Promise.resolve(value).then(finish) : finish(value);
    };
    const loaded = load(request.code, place);
    return 'main' in loaded ? call(loaded) : loaded.then(call);
  }

  // start evaluates with an empty stack, so that errors show nothing of what is around
  // the code.
  function start(place) {
    return Promise.resolve().then(() => evaluate(place));
  }

  // asProcess is the program of this process.
  function asProcess() {
    const exit = process.exit; // the code may replace it
    // A pipe takes 64 KiB at once; what is more would be lost in process.exit.
    for (const stream of [stdout, stderr]) stream._handle?.setBlocking?.(true);
    const place = places();
    process.once('exit', (code) => {
      place.remove();
      write(`${request.marker}x${code};`);
    });
    // Node would end with success when nothing is left that could go on.
    const unsettled = () => {
      stderr.write('Error: the code awaits something that never comes\n');
      exit(13); // as Node itself does for a module
    };
    process.once('beforeExit', unsettled);
    start(place)
      .finally(() => process.off('beforeExit', unsettled))
      // main has returned: timers that it left behind do not keep the result waiting.
      .then((called) => called && exit())
      .catch((error) => {
        // Thrown outside of any promise, the code's own handler gets it; and only
        // Node knows where a module does not compile.
        if (process.listenerCount('uncaughtException') > 0 || (error instanceof SyntaxError && process.argv[1] === place.module)) {
          setImmediate(() => {
            throw error;
          });
          return;
        }
        show(error, place);
        exit(1);
      });
  }

  return asProcess();
})
