// Finds main among the exports of a module that has none at its top level: what it
// exports is a function, or has one, or its default is or has one. Undefined for none.
const exportedMain = (exported) => {
  if (typeof exported === 'function') return exported;
  const main = exported?.main;
  if (typeof main === 'function') return main;
  const byDefault = exported?.default;
  return typeof byDefault === 'function' ? byDefault : byDefault?.main;
};

// Makes JSON of what main returned.
const express = (value, limit) => {
  let text;
  let lost = false;
  try {
    text = JSON.stringify(value === undefined ? null : value, (key, v) => {
      if (typeof v === 'number' && !Number.isFinite(v)) lost = true;
      return v;
    });
  } catch (e) {
    throw new TypeError(`main must return something that JSON can express: ${e.message}`);
  }
  if (text === undefined) throw new TypeError(`main must return something that JSON can express, not a ${typeof value}`);
  const data = Buffer.from(text);
  if (data.length > limit) throw new RangeError(`main returned ${data.length} bytes of JSON, more than the limit of ${limit}`);
  if (lost) process.stderr.write('main returned NaN or infinite numbers, which JSON cannot express: they are null in the result\n');
  return data;
};
