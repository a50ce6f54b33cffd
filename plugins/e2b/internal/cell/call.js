// Tells what main returns in a frame among the output. It stands behind returned.js.
(async (main, encoded) => {
  const { request, data } = await returned(main, encoded);
  process.stdout.write(`${request.marker}${data.toString('base64')};`);
})
