// A server on the official SDK over stdio, which counts in the session of its instance: node stdio.mjs VERSION
//
//   visit    counts, and answers the count: the handler finds the session by its context
import { Sessiond, session } from '../../dist/index.js';
import { serverSdk } from './sdk.mjs';

const [version] = process.argv.slice(2);
const { Server, onList, onCall } = await serverSdk(version);
const { StdioServerTransport } = await (version === '2'
  ? import('@modelcontextprotocol/server/stdio')
  : import(`sdk-${version}/server/stdio.js`));

const sessiond = Sessiond.init({ start: false });
await sessiond.session();

const server = new Server({ name: 'visits', version: '1.0.0' }, { capabilities: { tools: {} } });
onList(server, () => ({ tools: [{ name: 'visit', inputSchema: { type: 'object' } }] }));
onCall(server, async (_, { extra }) => {
  const visits = ((await session(extra).get('visits')) ?? 0) + 1;
  await session(extra).set('visits', visits);
  return { content: [{ type: 'text', text: String(visits) }] };
});
await server.connect(new StdioServerTransport());
