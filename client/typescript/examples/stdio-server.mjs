// An MCP server on stdio that goes on counting when its host starts it again: node stdio-server.mjs
//
//   npm install ./mcp-sessiond-client-0.1.0.tgz @modelcontextprotocol/sdk
//
// Put `node node_modules/mcp-sessiond-client/examples/stdio-server.mjs` into your host's file of MCP servers,
// call `visit` some times, reconnect the server in the host, and call `visit` once more. Without the daemon
// it counts in its own memory.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { Sessiond } from 'mcp-sessiond-client';

const sessiond = Sessiond.init();
const kept = await sessiond.session();
let visits = (await kept?.get('visits').catch(() => undefined)) ?? 0;

const server = new McpServer({ name: 'visits', version: '1.0.0' });
server.registerTool('visit', { description: 'Counts how often it was called' }, async () => {
  visits += 1;
  await kept?.set('visits', visits).catch(() => undefined);
  return { content: [{ type: 'text', text: `visit ${visits}` }] };
});
await server.connect(new StdioServerTransport());
