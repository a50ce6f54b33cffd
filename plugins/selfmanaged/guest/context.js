// The part of runner.js that runs one piece of code after the other in the same
// process. Code shares it with this: what it does to this it does to itself alone.
//
// V8's own mode for consoles evaluates the code: let and const may be declared
// again, await stands anywhere. vm surrounds it, which lets SIGINT break a loop.
'use strict';
const inspector = require('node:inspector');
const net = require('node:net');
const path = require('node:path');
const util = require('node:util');
const vm = require('node:vm');
const { Module } = require('node:module');

const WORKSPACE = '/workspace';
// Globals by which evaluated text reaches this file; there only for a moment.
const ENTER = '__sandbox_enter';
const TAKE = '__sandbox_take';
const MAX_SOURCES = 1000; // whose lines messages can show

// withGlobal calls work while a global function exists.
function withGlobal(name, value, work) {
  Object.defineProperty(globalThis, name, { configurable: true, enumerable: false, value });
  try {
    return work();
  } finally {
    delete globalThis[name];
  }
}

const interrupted = new Error('interrupted');

// goOn repairs a stream that was interrupted in the middle of a write: it would wait
// for the end of that one for ever, and keep everything after it to itself.
function goOn(stream) {
  const state = stream._writableState;
  if (!state) return;
  state.corked = 0;
  state.bufferProcessing = false;
  if (state.writing) state.onwrite(null);
}

class Context {
  constructor(runner, cwd) {
    this.runner = runner;
    this.count = 0;
    this.sources = new Map();
    this.session = new inspector.Session();
    this.session.connect();
    this.entrance = new vm.Script(`globalThis.${ENTER}()`, { filename: __filename });
    this.stop = null; // rejects what the execution waits for
    this.provide(cwd);
    process.on('SIGINT', () => this.stop?.(interrupted));
    // What a timer throws that an earlier execution left behind ends nothing.
    process.on('uncaughtException', (e) => this.show(e));
    process.on('unhandledRejection', (e) => this.show(e));
  }

  // provide makes the globals that a script has in Node.
  provide(cwd) {
    const m = new Module(path.join(cwd, 'context.js'), null);
    m.filename = m.id;
    m.paths = Module._nodeModulePaths(cwd);
    let load;
    try {
      m._compile('exports.require = require; exports.load = (name, options) => import(name, options);', m.id);
    } catch {
      m._compile('exports.require = require; exports.load = (name) => import(name);', m.id); // Node 18
    }
    const { require: requireThere, load: loadThere } = m.exports;
    load = (name, options) => (options === undefined ? loadThere(name) : loadThere(name, options));
    m.exports = {};
    for (const [name, value] of Object.entries({ require: requireThere, module: m, exports: m.exports, __import: load })) {
      Object.defineProperty(globalThis, name, { configurable: true, writable: true, enumerable: false, value });
    }
  }

  // post calls the inspector, whose answer may come later.
  post(method, params) {
    let settle;
    const answer = new Promise((resolve, reject) => {
      settle = (error, result) => (error ? reject(Object.assign(new Error(error.message), error)) : resolve(result));
    });
    this.session.post(method, params, settle);
    return answer;
  }

  // breakable calls work, which SIGINT may end.
  breakable(work) {
    let value;
    const call = () => {
      delete globalThis[ENTER];
      value = work();
    };
    withGlobal(ENTER, call, () => this.entrance.runInThisContext({ breakOnSigint: true }));
    return value;
  }

  // settled waits for a promise, or for SIGINT.
  async settled(promise) {
    const stopped = new Promise((_, reject) => {
      this.stop = reject;
    });
    try {
      return await Promise.race([promise, stopped]);
    } finally {
      this.stop = null;
    }
  }

  // valueOf is the value itself that the inspector describes.
  async valueOf(remote) {
    if (remote.objectId !== undefined) {
      let value;
      const take = (v) => {
        value = v;
      };
      await withGlobal(TAKE, take, () =>
        this.post('Runtime.callFunctionOn', { objectId: remote.objectId, functionDeclaration: `function(){'use strict';globalThis.${TAKE}(this)}` }),
      );
      return value;
    }
    if (remote.unserializableValue !== undefined) {
      const text = remote.unserializableValue;
      return text.endsWith('n') ? BigInt(text.slice(0, -1)) : Number(text);
    }
    return remote.value;
  }

  async evaluate(code, filename) {
    const expression = `${code}\n//# sourceURL=${filename}`;
    const { result, exceptionDetails: failed } = await this.settled(
      this.breakable(() => this.post('Runtime.evaluate', { expression, replMode: true, objectGroup: 'execution' })),
    );
    if (!failed) return await this.valueOf(result);
    const error = failed.exception ? await this.valueOf(failed.exception) : new Error(failed.text);
    if (error instanceof SyntaxError && !String(error.stack).includes(filename)) {
      this.place = { filename, line: failed.lineNumber + 1, column: failed.columnNumber + 1 };
    }
    throw error;
  }

  // run runs one piece of code and returns its exit code.
  async run(request) {
    this.count += 1;
    this.place = null;
    const filename = path.join(WORKSPACE, `cell-${this.count}.js`);
    this.sources.set(filename, request.code.split('\n'));
    this.sources.delete(path.join(WORKSPACE, `cell-${this.count - MAX_SOURCES}.js`));
    const before = this.setEnvironment(request.env ?? {});
    this.runner.displays.begin(request.artifacts);
    try {
      const value = await this.evaluate(request.code, filename);
      if (request.arguments !== null) {
        const main = await this.evaluate("typeof main === 'function' ? main : undefined", 'main');
        if (main === undefined) throw new ReferenceError('arguments were given, so the code must define a function main');
        const result = await this.settled(Promise.resolve(this.breakable(() => main(request.arguments))));
        this.runner.send('value', this.runner.express(result, request.result_limit), this.header());
      } else if (value !== undefined && !request.code.trimEnd().endsWith(';')) {
        await this.settled(this.runner.displays.show('result', value));
      }
      return 0;
    } catch (error) {
      if (error === interrupted || error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') {
        for (const stream of this.runner.streams) goOn(stream);
        this.runner.stderr.write('Interrupted\n');
        return 130;
      }
      this.show(error);
      return 1;
    } finally {
      this.resetEnvironment(request.env ?? {}, before);
      this.session.post('Runtime.releaseObjectGroup', { objectGroup: 'execution' });
    }
  }

  header() {
    return { execution: this.execution };
  }

  setEnvironment(variables) {
    const before = {};
    for (const [name, value] of Object.entries(variables)) {
      before[name] = process.env[name];
      process.env[name] = value;
    }
    return before;
  }

  resetEnvironment(variables, before) {
    for (const [name, value] of Object.entries(variables)) {
      if (process.env[name] !== value) continue; // the code has changed it
      if (before[name] === undefined) delete process.env[name];
      else process.env[name] = before[name];
    }
  }

  // show prints an error as Node shows an uncaught one, without this file's frames.
  show(error) {
    let text;
    try {
      text = util.inspect(error);
    } catch {
      text = 'an error that cannot be shown';
    }
    text = text.replaceAll(/\n +at .*(?:\/run\/sandbox\/|node:).*?( {)?$/gm, '$1');
    if (!util.types.isNativeError(error)) {
      this.runner.stderr.write(`Uncaught ${text}\n`);
      return;
    }
    const at = /(\/workspace\/cell-\d+\.js):(\d+):(\d+)/.exec(text);
    const place = this.place ?? (at && { filename: at[1], line: Number(at[2]), column: Number(at[3]) });
    this.place = null;
    const source = place && this.sources.get(place.filename)?.[place.line - 1];
    if (source !== undefined && source !== null) {
      this.runner.stderr.write(`${place.filename}:${place.line}\n${source}\n${' '.repeat(place.column - 1)}^\n\n`);
    }
    this.runner.stderr.write(`${text}\n`);
  }
}

// serve makes a context of this process, for the rest of its life.
function serve(setup, runner) {
  Object.assign(process.env, setup.env ?? {});
  let problem = '';
  try {
    process.chdir(setup.cwd);
  } catch (e) {
    problem = e.code === 'ENOENT' ? 'No such file or directory' : e.code === 'ENOTDIR' ? 'Not a directory' : e.code;
  }
  process.argv = [process.argv[0]];
  const context = new Context(runner, process.cwd());
  const requests = new net.Socket({ fd: 3, readable: true, writable: false });
  let queue = Promise.resolve();
  let parts = [];
  requests.on('data', (part) => {
    for (let end; (end = part.indexOf(10)) >= 0; part = part.subarray(end + 1)) {
      const line = Buffer.concat([...parts, part.subarray(0, end)]).toString('utf8');
      parts = [];
      queue = queue.then(() => one(JSON.parse(line)));
    }
    if (part.length > 0) parts.push(part);
  });
  requests.on('close', () => runner.exit(0));
  async function one(request) {
    context.execution = request.execution;
    runner.displays.header = context.header();
    // One of several copies. Math.random cannot be seeded again.
    if (request.renewal) Object.assign(process.env, request.renewal.env ?? {});
    const code = await context.run(request);
    runner.displays.begin(null);
    runner.send('done', null, { exit_code: code, peak_bytes: process.resourceUsage().maxRSS * 1024, ...context.header() });
  }
  runner.send('done', null, { refused: problem });
}

module.exports = serve;
