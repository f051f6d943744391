// A page with the official TypeScript client, which survives a reload: chromium.mjs bundles and serves it, and reads its
// console.
//
// Its query: `serve`, the address; `call`, the arguments of `steps`; `cookie`, if it must not name its session. What must
// outlive the page is in sessionStorage. The first load calls `steps`; a later one makes two calls beside it, and goes on
// with its stream.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const query = new URLSearchParams(location.search);
const kept = sessionStorage;
const say = (said) => console.log(JSON.stringify(said));

// The SDK leaves `requestInit` out of a GET, so cookies need this.
async function withCookie(url, init) {
  const headers = new Headers(init.headers);
  headers.delete('mcp-session-id');
  return fetch(url, { ...init, headers, credentials: 'include' });
}

const isCookie = query.has('cookie');
const transport = new StreamableHTTPClientTransport(new URL(query.get('serve')), {
  sessionId: (!isCookie && kept.session) || undefined,
  fetch: isCookie ? withCookie : undefined,
  reconnectionOptions: {
    initialReconnectionDelay: 100,
    maxReconnectionDelay: 1000,
    reconnectionDelayGrowFactor: 1.5,
    maxRetries: 100,
  },
});
const client = new Client({ name: 'page', version: '1.0.0' });
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => say({ heard: params.data }));

// The answer to a call of a former load has an id that this client knows nothing of.
let isResumed = false;
const answered = new Promise((resolve) => {
  transport.onmessage = (message) => isResumed && 'result' in message && resolve(message.result);
});
const onresumptiontoken = (id) => { kept.last = id; };
const count = async () => (await client.callTool({ name: 'increment', arguments: {} })).content[0].text;

async function steps() {
  if (!kept.last) {
    const call = { name: 'steps', arguments: JSON.parse(query.get('call')) };
    return client.callTool(call, undefined, { onresumptiontoken, timeout: 600_000 });
  }
  say({ counted: [await count(), await count()] });
  isResumed = true;
  // `callTool` with `resumptionToken` tells no further ids: a second reload would hear the same again.
  await transport.resumeStream(kept.last, { onresumptiontoken });
  say({ resumed: true });
  return answered;
}

try {
  await client.connect(transport);
  if (transport.protocolVersion) kept.version = transport.protocolVersion;
  else transport.setProtocolVersion(kept.version);
  kept.session = transport.sessionId ?? '';
  say({ connected: kept.session });
  if (query.has('call')) {
    const { content } = await steps();
    isResumed = false;
    say({ answer: content[0].text });
  }
  say({ counted: [await count()] });
} catch (error) {
  say({ failed: String(error) });
}
