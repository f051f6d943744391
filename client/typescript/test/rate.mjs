// How fast events are kept, and that memory stays flat: node test/rate.mjs [EVENTS [ROW…]]
//
// Run it with a release build of the daemon: MCP_SESSIOND_BIN=target/release/mcp-sessiond. It stores EVENTS
// (100,000) progress notifications, as fast as it can, through each of:
//
//   the SDK's in-memory store     what it costs to keep nothing
//   SessionEventStore             50 stores at one time, and each awaited before the next
//   durable                       one call that tells so many steps, to the official client
//
// and prints a table: events a second, and how much memory (resident set, of this process, of the server, and
// of the daemon) grew from the tenth part on. ROW: a part of the name of a row.
import { readFileSync } from 'node:fs';
import { SessionEventStore, Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { connect } from './lib/host.mjs';
import { serveIn } from './lib/server.mjs';
import { InMemoryEventStore } from './sdks/node_modules/sdk-1.32/dist/esm/examples/shared/inMemoryEventStore.js';

const [given = '100000', ...wanted] = process.argv.slice(2);
const total = Number(given);
const MIB = 1_048_576;
const note = (progress) => ({
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: 'p', progress, total },
});

/** The resident set of a process, in MiB. */
function resident(pid) {
  const [, kib] = readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmRSS:\s+(\d+)/);
  return (Number(kib) * 1024) / MIB;
}

const rows = [];

/** Measures `work`, which says how far it has come. `pids`: whose memory is looked at. */
async function measure(name, pids, work) {
  if (wanted.length > 0 && !wanted.some((row) => name.includes(row))) return;
  const memory = () => Object.values(pids).map(resident);
  let early;
  const began = performance.now();
  await work((count) => {
    if (count === Math.floor(total / 10)) early = memory();
  });
  const rate = Math.round(total / ((performance.now() - began) / 1_000));
  const grown = memory().map((mib, at) => mib - early[at]);
  const told = Object.keys(pids).map(
    (who, at) => `${who} ${grown[at] < 0 ? '' : '+'}${grown[at].toFixed(0)} MiB`,
  );
  rows.push(`| ${name} | ${rate} | ${told.join(', ')} |`);
}

const store = (make, together) => async (came) => {
  const [one, stream] = [await make(), '_GET_stream'];
  for (let count = 0; count < total; ) {
    const most = Math.min(together, total - count);
    await Promise.all(Array.from({ length: most }, (_, at) => one.storeEvent(stream, note(count + at + 1))));
    for (let at = 1; at <= most; at++) came(count + at);
    count += most;
  }
};

const world = await new World().start();
try {
  const here = { 'this process': process.pid };
  const both = { ...here, daemon: world.daemon.pid };
  const session = () => Sessions.ofService('rate', world.options).create();
  const ours = async () => new SessionEventStore(await session());
  await measure(
    "the SDK's in-memory store",
    here,
    store(async () => new InMemoryEventStore(), 50),
  );
  await measure('`SessionEventStore`, 50 at one time', both, store(ours, 50));
  await measure('`SessionEventStore`, one after the other', both, store(ours, 1));
  const server = await serveIn(world, '1.32');
  const { text, client } = await connect('1.32', server.url);
  const pids = { server: server.child.pid, daemon: world.daemon.pid };
  await measure('`durable`, one call', pids, async (came) => {
    let count = 0;
    await text('steps', { n: total }, { onprogress: () => came(++count), timeout: 3_600_000 });
    if (count !== total) throw new Error(`the client got ${count} of ${total} events`);
  });
  await client.close();
  await kill(server.child);
} finally {
  await world.end();
}
console.log(
  `${total} events\n\n| store | events/s | memory, from the tenth part on |\n| --- | --- | --- |\n${rows.join('\n')}`,
);
process.exit();
