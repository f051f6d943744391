// The official client, of a version, as a host.
import { clientSdk } from '../sdks/sdk.mjs';

const reconnectionOptions = {
  initialReconnectionDelay: 50,
  maxReconnectionDelay: 200,
  reconnectionDelayGrowFactor: 1.2,
  maxRetries: 200,
};

/** A client that waits for what it is told. `options`: of its transport. */
export async function connect(version, url, options = {}) {
  const { Client, Transport, call } = await clientSdk(version);
  const capabilities = { sampling: {}, roots: { listChanged: true } };
  const client = new Client({ name: 'tester', version: '7.0.0' }, { capabilities });
  const [notes, waiting] = [[], []];
  client.fallbackNotificationHandler = async ({ method, params }) => {
    notes.push({ method, params });
    for (const look of [...waiting]) look();
  };
  const transport = new Transport(new URL(url), { reconnectionOptions, ...options });
  await client.connect(transport);
  const text = async (name, given = {}, options = {}) =>
    (await call(client, { name, arguments: given }, options)).content[0].text;
  const noted = (count) =>
    new Promise((resolve) => {
      const look = () => {
        if (notes.length < count) return;
        waiting.splice(waiting.indexOf(look), 1);
        resolve();
      };
      waiting.push(look);
      look();
    });
  return { client, transport, text, notes, noted };
}
