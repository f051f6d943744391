// A page with the official client, and `mcp-sessiond-client/browser` around its transport; see chromium.mjs. Its query: `gate`.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { connectPage } from '../../client/typescript/dist/browser.js';

const say = (said) => console.log(JSON.stringify(said));
const told = (called) => ({ progress }) => say({ progress, called });
const client = new Client({ name: 'page', version: '1.0.0' });
// All that any load of the page has heard. The console may lose what the page says in its last moment.
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params: { data } }) => {
  sessionStorage.heard = `${sessionStorage.heard ?? ''} ${data}`;
  say({ heard: data });
});
const reconnectionOptions = { initialReconnectionDelay: 100, maxReconnectionDelay: 1_000, reconnectionDelayGrowFactor: 1.5, maxRetries: 100 };

async function answer(name, call) {
  const said = await call.then(
    ({ content }) => ({ answer: content[0].text }),
    ({ code, message }) => ({ answer: `${code}: ${message}` }),
  );
  say({ name, ...said });
}

const { transport, resumed, calls } = await connectPage(client, StreamableHTTPClientTransport, new URL('/mcp', location.href), {
  transport: { reconnectionOptions },
});
say({ connected: transport.sessionId, resumed, calls: calls.map(({ name }) => name) });
for (const call of calls) {
  call.onprogress = told(call.name);
  void answer(call.name, call.result);
}
// The console of Chromium calls these.
window.call = (name, given = {}) =>
  void answer(name, client.callTool({ name, arguments: given }, undefined, { onprogress: told(name), timeout: 600_000 }));
say({ ready: true });
