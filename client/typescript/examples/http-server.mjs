// An MCP server over HTTP whose sessions survive it: node http-server.mjs [PORT]
//
//   npm install ./mcp-sessiond-client-0.1.0.tgz @modelcontextprotocol/sdk
//   node node_modules/mcp-sessiond-client/examples/http-server.mjs 8000
//
// Connect any client to http://127.0.0.1:8000/mcp, call `visit` some times, kill the server with SIGKILL,
// start it again, and call `visit` once more: the client goes on with the same session, and the server goes
// on counting.
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { durable, session } from 'mcp-sessiond-client';

function shop() {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  server.registerTool(
    'visit',
    { description: 'Counts how often it was called in this session' },
    async (extra) => {
      const visits = ((await session(extra).get('visits')) ?? 0) + 1;
      await session(extra).set('visits', visits);
      return { content: [{ type: 'text', text: `visit ${visits}` }] };
    },
  );
  return server;
}

const handle = durable(shop, { service: 'example-shop', transport: StreamableHTTPServerTransport });
const server = createServer((request, response) =>
  request.url === '/mcp' ? handle(request, response) : response.writeHead(404).end(),
);
server.listen(Number(process.argv[2] ?? 8000), '127.0.0.1', () => {
  console.log(`listening at http://127.0.0.1:${server.address().port}/mcp`);
});
