// What a driver does with either version of the official TypeScript client: it calls what it reads, and writes what it gets.
import { createInterface } from 'node:readline';

const [url, seconds] = process.argv.slice(2);
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

// `call(params, options)` calls a tool; `late` is the code of the client's own time limit.
export async function drive(client, Transport, call, late) {
  client.onerror = (error) => say({ trouble: String(error) });
  await client.connect(new Transport(new URL(url)));
  say({ ready: true });

  async function make(wanted) {
    const { key } = wanted;
    const onprogress = ({ progress }) => say({ key, progress });
    try {
      const result = await call({ name: 'count', arguments: wanted }, { onprogress, timeout: seconds * 1000 });
      say({ key, result: result.content[0].text });
    } catch (error) {
      say({ key, error: error.message, code: error.code, data: error.data, late: error.code === late });
    }
  }

  const made = [];
  for await (const line of createInterface({ input: process.stdin })) made.push(make(JSON.parse(line)));
  await Promise.all(made);
  await client.close();
}
