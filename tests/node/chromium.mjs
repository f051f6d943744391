// Chromium with page.mjs, which is bundled and served here: node chromium.mjs
//
// It prints {"origin"}, where the page is. Orders are lines of JSON; the `id` of each is printed once it is carried out:
//
//   {"do": "open", "query": {…}}     opens the page with this query
//   {"do": "reload"}                 reloads it
//   {"do": "cookie", "url", "value"} gives the cookie of this server another value; answers with the former one
//   {"do": "visit", "url"}           opens a page of somebody else's
//   {"do": "press", "what"}          presses what this selector names, and says yes to what it asks
//   {"do": "fill", "what", "text"}   writes into a field
//   {"do": "choose", "what", "text"} chooses from a list
//   {"do": "wait", "what", "count"}  waits for so many elements; answers with their texts
//   {"do": "none", "what"}           waits until there is none to be seen
//
// Whatever the page writes to its console is printed, and {"sent": METHOD, "session": …} for each request that it makes
// to another origin. The browser ends with the input.
import fs from 'node:fs';
import http from 'node:http';
import readline from 'node:readline';
import { chromium } from 'playwright-core';
import { rolldown } from 'rolldown';

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const NAME = 'mcp_session_id';

const bundle = await rolldown({ input: new URL('page.mjs', import.meta.url).pathname, platform: 'browser' });
const { output: [{ code }] } = await bundle.generate({ format: 'esm' });
const html = '<!doctype html><meta charset=utf-8><title>Page</title><script type=module src=/page.js></script>';
const server = http.createServer(({ url }, response) => {
  const isCode = url === '/page.js';
  response.setHeader('content-type', isCode ? 'text/javascript' : 'text/html').end(isCode ? code : html);
});
await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
const origin = `http://127.0.0.1:${server.address().port}`;

const places = (process.env.PATH ?? '').split(':').map((place) => `${place}/chromium`);
const executablePath = places.find((path) => fs.existsSync(path));
if (!executablePath) throw new Error('no chromium in PATH: run tests/run, which installs it');
const browser = await chromium.launch({ executablePath });
const context = await browser.newContext();
const page = await context.newPage();
page.on('console', (message) => {
  const text = message.text();
  if (text.startsWith('{')) process.stdout.write(`${text}\n`);
  else say({ console: text });
});
page.on('dialog', (dialog) => dialog.accept());
page.on('pageerror', (error) => say({ failed: String(error) }));
page.on('request', (request) => {
  if (request.url().startsWith(origin)) return;
  say({ sent: request.method(), session: request.headers()['mcp-session-id'] ?? null });
});
say({ origin });

const orders = {
  open: async ({ query }) => { await page.goto(`${origin}/?${new URLSearchParams(query)}`); },
  reload: async () => { await page.reload(); },
  cookie: async ({ url, value }) => {
    const [was] = (await context.cookies(url)).filter(({ name }) => name === NAME);
    await context.addCookies([{ ...was, value }]);
    return was;
  },
  visit: async ({ url }) => { await page.goto(url); },
  press: async ({ what }) => { await page.locator(what).click(); },
  fill: async ({ what, text }) => { await page.locator(what).fill(text); },
  choose: async ({ what, text }) => { await page.locator(what).selectOption(text); },
  wait: async ({ what, count }) => {
    const found = page.locator(what);
    await found.nth(count - 1).waitFor({ state: 'attached' });
    return found.allTextContents();
  },
  none: async ({ what }) => { await page.locator(what).waitFor({ state: 'hidden' }); },
};
for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  say({ id: order.id, done: (await orders[order.do](order)) ?? null });
}
await browser.close();
process.exit(0);
