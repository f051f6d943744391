// An Express server on the official SDK, as its examples have it, that forgets everything when it ends:
// node express.mjs PORT [events] [json]
//
// It prints where it listens. With `events` it numbers its events and says them again; with `json` it answers by JSON, not by a
// stream. Each session counts for itself. Each `initialize` is told by a line on standard output.
//
//   increment                    answers the count, as text
//   slow {gate}                  tells by a log message that it has begun, waits until the file `gate` is there, and answers as
//                                `increment`
//   steps {n, gate}              tells n steps as progress, waits for the gate after the first one, and answers n
//   notify {n, gate}             sends n log messages that belong to no call, numbered from 1, when the gate is there
//   ask {prompt}                 asks the host for a sample and answers its text
import fs from 'node:fs';
import path from 'node:path';
import { randomUUID } from 'node:crypto';
import express from 'express';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema, ListToolsRequestSchema, isInitializeRequest,
} from '@modelcontextprotocol/sdk/types.js';

const [port = '0', ...options] = process.argv.slice(2);
const say = (line) => process.stdout.write(`${line}\n`);

// That of the SDK's examples sorts by time, which two events may have in common.
class Events {
  all = [];

  async storeEvent(stream, message) {
    this.all.push({ stream, message });
    return `${this.all.length}`;
  }

  async getStreamIdForEventId(id) {
    return this.all[id - 1]?.stream;
  }

  async replayEventsAfter(last, { send }) {
    const { stream } = this.all[last - 1];
    for (let at = Number(last); at < this.all.length; at++) {
      const { stream: its, message } = this.all[at];
      // A priming event has nothing to say.
      if (its === stream && message.method + message.id !== 'undefinedundefined') await send(`${at + 1}`, message);
    }
    return stream;
  }
}

function opened(gate) {
  return new Promise((resolve) => {
    const watcher = fs.watch(path.dirname(gate), () => look());
    const look = () => {
      if (!fs.existsSync(gate)) return;
      watcher.close();
      resolve();
    };
    look();
  });
}

function server() {
  const made = new Server({ name: 'express', version: '1.0.0' }, {
    capabilities: { tools: { listChanged: true }, logging: {} },
  });
  let count = 0;
  const log = (logger, data) => ({ method: 'notifications/message', params: { level: 'info', logger, data } });
  const tools = {
    increment: () => ++count,
    slow: async ({ gate }, { sendNotification }) => {
      await sendNotification(log('slow', `begun ${gate}`));
      await opened(gate);
      return ++count;
    },
    steps: async ({ n, gate }, { sendNotification, _meta }) => {
      for (let progress = 1; progress <= n; progress++) {
        const params = { progressToken: _meta.progressToken, progress, total: n };
        await sendNotification({ method: 'notifications/progress', params });
        if (progress === 1) await opened(gate);
      }
      return n;
    },
    notify: ({ n, gate }) => {
      opened(gate).then(async () => {
        for (let data = 1; data <= n; data++) await made.notification(log('notify', data));
      });
      return n;
    },
    ask: async ({ prompt }, { sendRequest }) => {
      const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
      const { z } = await import('zod');
      const asked = { method: 'sampling/createMessage', params: { messages, maxTokens: 10 } };
      const { content } = await sendRequest(asked, z.object({ content: z.any() }).passthrough());
      return content.text;
    },
  };
  made.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: 'object' } })),
  }));
  made.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const text = String(await tools[params.name](params.arguments ?? {}, extra));
    return { content: [{ type: 'text', text }] };
  });
  return made;
}

const transports = new Map();
const app = express();
app.use(express.json());
app.all('/mcp', async (request, response) => {
  const id = request.headers['mcp-session-id'];
  let transport = transports.get(id);
  if (!transport) {
    if (id || !isInitializeRequest(request.body)) {
      const error = { code: -32000, message: 'Bad Request: No valid session ID provided' };
      return void response.status(400).json({ jsonrpc: '2.0', error, id: null });
    }
    say('initialize');
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: options.includes('json'),
      eventStore: options.includes('events') ? new Events() : undefined,
      onsessioninitialized: (made) => void transports.set(made, transport),
    });
    transport.onclose = () => {
      transports.delete(transport.sessionId);
      say('closed');
    };
    await server().connect(transport);
  }
  await transport.handleRequest(request, response, request.body);
});
const listening = app.listen(Number(port), '127.0.0.1', () => {
  say(`listening at http://127.0.0.1:${listening.address().port}/mcp`);
});
