// The official client for TypeScript: node sizes.mjs URL HEADERS SIZES VERSION. A line for each answer: its bytes, and `whole` or what came
// instead.
const [url, headers, sizes, version] = process.argv.slice(2);
const [{ Client }, { StreamableHTTPClientTransport }] =
  version === '1'
    ? [await import('sdk-1.32/client/index.js'), await import('sdk-1.32/client/streamableHttp.js')]
    : await import('@modelcontextprotocol/client').then((client) => [client, client]);
const client = new Client({ name: 'sizes', version: '1' });
await client.connect(
  new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: JSON.parse(headers) } }),
);
for (const bytes of JSON.parse(sizes)) {
  try {
    const [{ text }] = (await client.callTool({ name: 'big', arguments: { bytes } })).content;
    console.log(bytes, text === 'x'.repeat(bytes) ? 'whole' : `another answer: ${text.slice(0, 100)}`);
  } catch (error) {
    console.log(bytes, String(error).slice(0, 200));
  }
}
process.exit(0);
