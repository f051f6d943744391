// Sessions, state and streams without any framework: node state.mjs [SESSION]
//
//   npm install ./mcp-sessiond-client-0.1.0.tgz
//   node node_modules/mcp-sessiond-client/examples/state.mjs
//
// It prints the id of a new session. Run it again with that id: it tells what is kept.
import { Sessions } from 'mcp-sessiond-client';

const sessions = Sessions.ofService('example-state');
const [id] = process.argv.slice(2);
const session = id ? await sessions.open(id) : await sessions.create({ status: { is: 'ready' } });

// Written only if nobody else has written since: a counter that loses no step.
const { value: runs = 0, version } = await session.entry('runs');
await session.compareAndSet('runs', version, runs + 1);
await session.standalone.append({
  jsonrpc: '2.0',
  method: 'notifications/message',
  params: { level: 'info', data: `run ${runs + 1}` },
});

const { events } = await session.replayAll({ stream: '_GET_stream' });
for (const { position, json } of events) console.log(`${position}: ${JSON.parse(json).params.data}`);
console.log(`session ${session.id}`);
