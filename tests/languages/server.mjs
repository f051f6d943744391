// A server on the TypeScript SDK and Express, with one line added, whose sessions server.py may go on with: server.mjs PORT [FOLDER]
// `/` is the page in that folder. Its tools:
//
//   visit         counts the calls of the session
//   hang          tells that it has begun, and never ends
//   count {gate}  tells the numbers from 1 to 6, and waits after 3 until there is a file at `gate`
//   ticks {n, ms} answers at once, and sends n log messages that belong to no call, numbered from 1, one every so many ms
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { durable, session } from '../../client/typescript/dist/index.js';

const { resolve } = createRequire(new URL('../../client/typescript/test/sdks/', import.meta.url));
const load = (name) => import(pathToFileURL(resolve(name)));
const { default: express } = await load('express');
const { McpServer } = await load('@modelcontextprotocol/server');
const { NodeStreamableHTTPServerTransport } = await load('@modelcontextprotocol/node');
const { z } = await load('zod');

const text = (said) => ({ content: [{ type: 'text', text: said }] });

function languages() {
  const server = new McpServer({ name: 'languages', version: '1' }, { capabilities: { logging: {} } });
  server.registerTool('visit', {}, async (extra) => {
    const visits = ((await session(extra).get('visits')) ?? 0) + 1;
    await session(extra).set('visits', visits);
    return text(`TypeScript: visit ${visits} of ${server.server.getClientVersion().name}`);
  });
  const tell = ({ mcpReq }, progress) =>
    mcpReq.notify({ method: 'notifications/progress', params: { progressToken: mcpReq._meta.progressToken, progress } });
  server.registerTool('hang', {}, async (extra) => {
    await tell(extra, 1);
    await new Promise(() => {});
  });
  server.registerTool('count', { inputSchema: z.object({ gate: z.string() }) }, async ({ gate }, extra) => {
    for (let number = 1; number <= 6; number++) {
      await tell(extra, number);
      while (number === 3 && !existsSync(gate)) await pause(5);
    }
    return text('6');
  });
  server.registerTool('ticks', { inputSchema: z.object({ n: z.number(), ms: z.number() }) }, async ({ n, ms }) => {
    let data = 0;
    const timer = setInterval(() => {
      if (++data === n) clearInterval(timer);
      void server.server.notification({ method: 'notifications/message', params: { level: 'info', data } });
    }, ms);
    return text(String(n));
  });
  return server;
}

const [port, folder] = process.argv.slice(2);
const app = express();
app.use(express.json());
app.all('/mcp', durable(languages, { service: 'languages', transport: NodeStreamableHTTPServerTransport }));
if (folder) app.use(express.static(folder));
app.listen(Number(port), '127.0.0.1', () => console.log('listening'));
