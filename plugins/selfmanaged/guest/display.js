// The part of runner.js that turns values into artifacts. Loaded when there is the
// first one.
'use strict';
const util = require('node:util');

const BINARY = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'application/pdf'];

// plainData is the JSON of an object or array that is nothing but data.
function plainData(value) {
  if (value === null || typeof value !== 'object') return undefined;
  const prototype = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && prototype !== Object.prototype && prototype !== null) return undefined;
  try {
    return JSON.stringify(value, function strict(key, v) {
      const given = this[key]; // before toJSON
      if (v === undefined || typeof v === 'function' || typeof v === 'symbol' || typeof v === 'bigint') throw new TypeError();
      if (typeof v === 'number' && !Number.isFinite(v)) throw new TypeError();
      if (given !== null && typeof given === 'object' && !Array.isArray(given)) {
        const of = Object.getPrototypeOf(given);
        if (of !== Object.prototype && of !== null) throw new TypeError();
      }
      return v;
    });
  } catch {
    return undefined; // it has no such form
  }
}

function encode(mime, data) {
  if (data instanceof Uint8Array) return Buffer.from(data);
  if (typeof data === 'string') return Buffer.from(data, BINARY.includes(mime) ? 'base64' : 'utf8');
  return Buffer.from(JSON.stringify(data) ?? 'null');
}

class Display {
  constructor(send) {
    this.channel = send;
    this.begin(null);
  }

  // begin says that an execution begins, which may send artifacts up to limits, or
  // none.
  begin(limits) {
    this.limits = limits;
    this.group = 0;
    this.sent = 0;
    this.left = limits?.max_total_bytes ?? 0;
  }

  // forms are the representations of a value by MIME type.
  forms(value) {
    const forms = { 'text/plain': util.inspect(value) };
    const json = plainData(value);
    if (json !== undefined) forms['application/json'] = json;
    return forms;
  }

  // show sends a value at once, unless it makes its representations itself, as
  // Jupyter's kernels for JavaScript have it: then it returns a promise.
  show(kind, value, raw) {
    if (!this.limits) return undefined;
    this.group += 1;
    const { group, limits } = this;
    const send = (forms) => this.send(kind, group, limits, forms);
    const own = raw ? undefined : value?.[Symbol.for('Jupyter.display')];
    if (typeof own === 'function') return Promise.resolve(own.call(value)).then(send);
    return send(raw ? value : this.forms(value));
  }

  send(kind, group, limits, forms) {
    for (const [mime, data] of Object.entries(forms ?? {})) {
      // One above the limit shows that there are more.
      if (limits !== this.limits || this.sent > limits.max_count) return;
      this.sent += 1;
      let bytes = encode(mime, data);
      const size = bytes.length;
      let refused = '';
      if (size > limits.max_bytes) refused = `larger than ${limits.max_bytes} bytes`;
      else if (size > this.left) refused = `more than ${limits.max_total_bytes} bytes with the artifacts before it`;
      if (refused) bytes = Buffer.alloc(0);
      this.left -= bytes.length;
      this.channel(kind, bytes, { mime, group, size, refused });
    }
  }
}

module.exports = Display;
