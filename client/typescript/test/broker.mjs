// A server on stdio that carries out version 1's calls, one a line of its input: load, store TOKEN, reject,
// status, session, burst (60 writes at once), anew. Each is answered by one line of JSON on standard output;
// what the library logs is on standard error.
import { createInterface } from 'node:readline';
import { Sessiond } from '../dist/index.js';

const sessiond = Sessiond.init(JSON.parse(process.argv[2] ?? '{}'));
let kept;
const orders = {
  load: async () => {
    const token = await sessiond.load();
    return token ? Buffer.from(token).toString() : null;
  },
  store: (token) => sessiond.store(token),
  reject: () => sessiond.reject(),
  status: () => {
    const { is, outcome, reason } = sessiond.status;
    return { is, outcome, code: reason?.code };
  },
  session: async () => {
    kept = await sessiond.session();
    return kept?.set('k', 1).then(String) ?? null;
  },
  burst: () => Promise.all(Array.from({ length: 60 }, (_, n) => kept.set(`k${n}`, n))).then(() => 'kept'),
  value: async () => (await (await sessiond.session())?.get('k')) ?? null,
  anew: async () => (await sessiond.beginAnew()) !== undefined,
  release: () => sessiond.release(),
};
for await (const line of createInterface({ input: process.stdin })) {
  const [order, given] = line.split(' ');
  process.stdout.write(`${JSON.stringify((await orders[order](given)) ?? null)}\n`);
}
