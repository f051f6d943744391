// A server on the TypeScript SDK whose sessions server.py may go on with: server.mjs PORT
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { durable, session } from '../../client/typescript/dist/index.js';

const { resolve } = createRequire(new URL('../../client/typescript/test/sdks/', import.meta.url));
const load = (name) => import(pathToFileURL(resolve(name)));
const { McpServer } = await load('@modelcontextprotocol/server');
const { NodeStreamableHTTPServerTransport } = await load('@modelcontextprotocol/node');

function languages() {
  const server = new McpServer({ name: 'languages', version: '1' });
  server.registerTool('visit', {}, async (extra) => {
    const visits = ((await session(extra).get('visits')) ?? 0) + 1;
    await session(extra).set('visits', visits);
    const { name } = server.server.getClientVersion();
    return { content: [{ type: 'text', text: `TypeScript: visit ${visits} of ${name}` }] };
  });
  server.registerTool('hang', {}, async ({ mcpReq }) => {
    await mcpReq.notify({ method: 'notifications/progress', params: { progressToken: mcpReq._meta.progressToken, progress: 1 } });
    await new Promise(() => {});
  });
  return server;
}

const handle = durable(languages, { service: 'languages', transport: NodeStreamableHTTPServerTransport });
createServer(handle).listen(Number(process.argv[2]), '127.0.0.1', () => console.log('listening'));
