// Calls the main of a kernel's global scope. Whoever puts this before an expression of its
// own has what main returns as JSON: the request, decoded, and bytes.
const returned = async (main, encoded) => {
  const request = JSON.parse(Buffer.from(encoded, 'base64').toString());
  if (typeof main !== 'function') throw new ReferenceError('arguments were given, so the code must define a function main');
  const value = await main(JSON.parse(request.arguments));
  let text;
  try {
    text = JSON.stringify(value === undefined ? null : value, (key, v) => {
      if (typeof v === 'number' && !Number.isFinite(v)) throw new TypeError(`${v} is not JSON`);
      return v;
    });
  } catch (e) {
    throw new TypeError(`main must return something that JSON can express: ${e.message}`);
  }
  if (text === undefined) throw new TypeError(`main must return something that JSON can express, not a ${typeof value}`);
  const data = Buffer.from(text);
  if (data.length > request.limit) throw new RangeError(`main returned ${data.length} bytes of JSON, more than the limit of ${request.limit}`);
  return { request, data };
};
