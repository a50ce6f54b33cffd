// Calls the main of a kernel's global scope. Whoever puts this before an expression of its
// own has what main returns as JSON: the request, decoded, and bytes. It stands behind that of
// package returned of the SDK.
const returned = async (main, encoded) => {
  const request = JSON.parse(Buffer.from(encoded, 'base64').toString());
  if (typeof main !== 'function') throw new ReferenceError('arguments were given, so the code must define a function main');
  const value = await main(JSON.parse(request.arguments));
  const data = express(value, request.limit);
  return { request, data };
};
