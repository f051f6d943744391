// A server that does what the tests ask of it: node counter.mjs
//
//   increment, get               answer the count, as text
//   slow {gate}                  tells by a log message that it has begun, waits until the file `gate` is there, and
//                                answers as `increment`; counts nothing once it is cancelled
//   ask {prompt}                 asks the host for a sample and answers its text
//   notify {n, gate}             sends n log messages, numbered on from the last; with a gate it answers at once and
//                                sends them when that file is there
//   ticks {n, ms}                answers at once, and sends n log messages, numbered from 1, one every so many ms
//   steps {n, gates}             sends n log messages, numbered from 1, and answers n; `gates` names the file that it waits for
//                                after the message of a number
//   progress {n, gates}          the same by progress of the call
//   die {code}                   exits at once, without an answer
//   ignore                       neither SIGTERM nor the end of its input ends it any more
//   spawn {detached}             starts `sleep 1000`, in a process group of its own or not, and answers its pid
//   big {bytes}                  answers a text of this length
//   echo {…}                     answers its arguments, as JSON
//   env                          answers its environment, as JSON
//   complain {text}              writes this to standard error
//
// COUNTER_PIDS names a file to which it appends its pid at the start, before anything else; COUNTER_HANDSHAKES one to which it
// appends a line for each `initialize`.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

if (process.env.COUNTER_PIDS) fs.appendFileSync(process.env.COUNTER_PIDS, `${process.pid}\n`);

const server = new Server({ name: 'counter', version: '1.0.0' }, { capabilities: { tools: {}, logging: {} } });
let count = 0;
let notified = 0;

// Whether the file came; not, when the signal came first.
function opened(gate, signal) {
  return new Promise((resolve) => {
    const watcher = fs.watch(path.dirname(gate), () => look());
    const end = (came) => {
      watcher.close();
      resolve(came);
    };
    const look = () => fs.existsSync(gate) && end(true);
    signal?.addEventListener('abort', () => end(false));
    // It may have come before the watch began.
    look();
  });
}

async function notify(n) {
  for (; n > 0; n--) await server.sendLoggingMessage({ level: 'info', logger: 'notify', data: ++notified });
}

const tools = {
  increment: () => ++count,
  get: () => count,
  complain: ({ text }) => new Promise((resolve) => process.stderr.write(text, () => resolve(text.length))),
  slow: async ({ gate }, { signal }) => {
    await server.sendLoggingMessage({ level: 'info', logger: 'slow', data: `begun ${gate}` });
    return (await opened(gate, signal)) ? ++count : count;
  },
  ask: async ({ prompt = 'Well?' }) => {
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    // Tests of hosts that never answer end it by other means than a timeout.
    const { content } = await server.createMessage({ messages, maxTokens: 10 }, { timeout: 600_000 });
    return content.text;
  },
  notify: async ({ n, gate }) => {
    if (gate) opened(gate).then(() => notify(n));
    else await notify(n);
    return n;
  },
  ticks: ({ n, ms }) => {
    let data = 0;
    const timer = setInterval(() => {
      if (++data === n) clearInterval(timer);
      void server.sendLoggingMessage({ level: 'info', logger: 'ticks', data });
    }, ms);
    return n;
  },
  steps: async ({ n, gates }) => {
    for (let data = 1; data <= n; data++) {
      await server.sendLoggingMessage({ level: 'info', logger: 'steps', data });
      if (gates[data]) await opened(gates[data]);
    }
    return n;
  },
  progress: async ({ n, gates }, { _meta, sendNotification }) => {
    for (let progress = 1; progress <= n; progress++) {
      const params = { progressToken: _meta.progressToken, progress, total: n };
      await sendNotification({ method: 'notifications/progress', params });
      if (gates[progress]) await opened(gates[progress]);
    }
    return n;
  },
  die: ({ code = 1 }) => process.exit(code),
  ignore: () => {
    process.on('SIGTERM', () => {});
    setInterval(() => {}, 2 ** 30);
    return 'ignoring';
  },
  spawn: ({ detached = false }) => {
    const child = spawn('sleep', ['1000'], { detached, stdio: 'ignore' });
    child.unref();
    return child.pid;
  },
  big: ({ bytes }) => 'x'.repeat(bytes),
  echo: (given) => JSON.stringify(given),
  env: () => JSON.stringify(process.env),
};

server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: 'object' } })),
}));
server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  const text = String(await tools[params.name](params.arguments ?? {}, extra));
  return { content: [{ type: 'text', text }] };
});
const transport = new StdioServerTransport();
transport.onmessage = ({ method }) => {
  const file = process.env.COUNTER_HANDSHAKES;
  if (file && method === 'initialize') fs.appendFileSync(file, `${process.pid}\n`);
};
await server.connect(transport);
