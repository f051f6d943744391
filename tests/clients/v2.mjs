// Calls what it reads, and writes what it gets, with the official TypeScript client, second version: node v2.mjs URL SECONDS
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, seconds] = process.argv.slice(2);
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

const client = new Client({ name: 'campaign-v2', version: '1.0.0' });
client.onerror = (error) => say({ trouble: String(error) });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
say({ ready: true });

async function make(call) {
  const onprogress = ({ progress }) => say({ key: call.key, progress });
  try {
    const options = { onprogress, timeout: seconds * 1000 };
    const result = await client.callTool({ name: 'count', arguments: call }, options);
    say({ key: call.key, result: result.content[0].text });
  } catch (error) {
    say({ key: call.key, error: error.message, code: error.code, data: error.data, late: error.code === 'REQUEST_TIMEOUT' });
  }
}

const made = [];
for await (const line of createInterface({ input: process.stdin })) made.push(make(JSON.parse(line)));
await Promise.all(made);
await client.close();
