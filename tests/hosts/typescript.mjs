// A host on the official TypeScript client, second version: it connects to one stdio server as often as it is told.
//
//   node typescript.mjs MODE PROBE_MS COMMAND ARGUMENT…
//
// MODE is `auto`, `legacy`, or the version that the client is pinned to. Lines of JSON-RPC on standard input tell it:
//
//   connect {}    a new connection: {pid, ms, era}, or {refused, ms, said}
//   count {}      calls the tool, and answers its text; an error's text where there was none
//   said {}       what the connection's process has written to standard error
//   kill {}       SIGKILL of the connection's process; answers when the client has seen it
//   close {}      closes the connection as the client does
import readline from 'node:readline';
import { createRequire } from 'node:module';

const require = createRequire(process.env.SDK_FROM);
const { Client } = await import(require.resolve('@modelcontextprotocol/client'));
const { StdioClientTransport } = await import(require.resolve('@modelcontextprotocol/client/stdio'));

const [mode, probe, command, ...args] = process.argv.slice(2);
const versionNegotiation = { mode: ['auto', 'legacy'].includes(mode) ? mode : { pin: mode }, probe: { timeoutMs: Number(probe) } };
let client, transport, gone, said;

const verbs = {
  async connect() {
    said = '';
    client = new Client({ name: 'scripted', version: '1.0.0' }, { versionNegotiation });
    transport = new StdioClientTransport({ command, args, stderr: 'pipe' });
    transport.stderr.on('data', (some) => (said += some));
    gone = new Promise((resolve) => (client.onclose = resolve));
    const begun = performance.now();
    try {
      await client.connect(transport);
      await client.listTools();
    } catch (error) {
      await client.close().catch(() => {});
      return { refused: error.message, ms: performance.now() - begun, said };
    }
    return { pid: transport.pid, ms: performance.now() - begun, era: client.getNegotiatedProtocolVersion() };
  },
  async count() {
    const { content } = await client.callTool({ name: 'count', arguments: {} });
    return content[0].text;
  },
  said: () => said,
  async kill() {
    process.kill(transport.pid, 'SIGKILL');
    await gone;
  },
  close: () => client.close(),
};

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line);
  const result = await Promise.resolve(verbs[method](params)).catch((error) => `error: ${error.message}`);
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result: result ?? null }));
});
