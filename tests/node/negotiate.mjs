// The official client, second version, as it finds out which era of MCP a server speaks: node negotiate.mjs URL TOOL
//
// It shows the bearer token in TOKEN, if there is one. It tries 2026-07-28 first, and falls back to `initialize`. It calls the tool, and prints a line with the era, the version
// and the text that it got, or with the error.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, name] = process.argv.slice(2);
const client = new Client({ name: 'negotiate', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
const headers = process.env.TOKEN ? { Authorization: `Bearer ${process.env.TOKEN}` } : {};
const say = (what) => console.log(JSON.stringify(what));

try {
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  const { content } = await client.callTool({ name, arguments: {} });
  const [era, version] = [client.getProtocolEra(), client.getNegotiatedProtocolVersion()];
  say({ era, version, text: content[0].text });
  await client.close();
} catch (error) {
  say({ error: error.message, code: error.code });
  process.exitCode = 1;
}
