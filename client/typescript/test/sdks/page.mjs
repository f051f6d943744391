// A web page, as far as its script goes: node page.mjs VERSION URL STORAGE. Its storage is a file, so that it
// is there after the page was killed. It takes orders as lines of JSON, and tells what happens in the same
// way.
import fs from 'node:fs';
import { createInterface } from 'node:readline';
import { connectPage, endPage } from '../../dist/browser.js';
import { clientSdk } from './sdk.mjs';

const [version, url, file] = process.argv.slice(2);
const storage = {
  getItem: () => (fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : null),
  // In one step, as a browser does it: a page that is killed leaves the old entry or the new one.
  setItem: (_, text) => {
    fs.writeFileSync(`${file}.new`, text);
    fs.renameSync(`${file}.new`, file);
  },
  removeItem: () => fs.rmSync(file, { force: true }),
};
const say = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);
const { Client, Transport, call } = await clientSdk(version);
const client = new Client({ name: 'page', version: '1.0.0' }, { capabilities: {} });
client.fallbackNotificationHandler = async ({ params }) => say({ note: params.data });
const reconnectionOptions = {
  initialReconnectionDelay: 50,
  maxReconnectionDelay: 200,
  reconnectionDelayGrowFactor: 1.2,
  maxRetries: 200,
};
const options = { storage, transport: { reconnectionOptions } };
const { transport, resumed, calls } = await connectPage(client, Transport, new URL(url), options);
for (const former of calls) {
  former.onprogress = ({ progress }) => say({ resumed: former.name, progress });
  former.result.then(
    ({ content }) => say({ resumed: former.name, text: content[0].text }),
    ({ code }) => say({ resumed: former.name, code }),
  );
}
say({ connected: transport.sessionId, resumed, calls: calls.map(({ name }) => name) });
const orders = {
  call: async ({ name, given }) => {
    const onprogress = ({ progress }) => say({ called: name, progress });
    const { content } = await call(client, { name, arguments: given ?? {} }, { onprogress });
    say({ called: name, text: content[0].text });
  },
  end: async () => {
    await endPage(client, transport, options);
    say({ ended: true });
  },
};
createInterface({ input: process.stdin }).on('line', (line) => {
  const { do: order, ...given } = JSON.parse(line);
  orders[order](given).catch(({ code, message }) => say({ failed: order, code, message }));
});
