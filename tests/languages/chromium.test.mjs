// A page in Chromium, with the official client and `mcp-sessiond-client/browser`, against servers of the SDKs with one line added,
// Express and FastMCP: it is reloaded in the middle of a call, and the server is killed. It is reloaded among notifications, in front of
// `serve`, too. See `run`.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import path from 'node:path';
import readline from 'node:readline';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { binary, kill, World } from '../../client/typescript/test/lib/daemon.mjs';

const here = import.meta.dirname;
const installed = path.join(here, '../node/node_modules');
const { resolve } = createRequire(path.join(installed, 'x'));
const load = (name) => import(pathToFileURL(resolve(name)));
const { default: { chromium } } = await load('playwright-core');
const { rolldown } = await load('rolldown');
const PYTHON = path.join(here, '../../target/py/fastmcp/bin/python');

let world, browser, folder, code;
before(async () => {
  world = await new World().start();
  folder = mkdtempSync('/tmp/page-');
  const bundle = await rolldown({ input: path.join(here, 'page.mjs'), platform: 'browser', resolve: { modules: [installed] } });
  const { output } = await bundle.generate({ format: 'esm' });
  code = output[0].code;
  const executablePath = spawnSync('which', ['chromium']).stdout.toString().trim();
  assert.ok(executablePath, 'no chromium in PATH: run tests/run, which installs it');
  browser = await chromium.launch({ executablePath });
});
after(async () => {
  await browser?.close();
  await world?.end();
  rmSync(folder, { recursive: true, force: true });
});

const HTML = '<!doctype html><meta charset=utf-8><title>Page</title><script type=module src=/page.js></script>';
const servers = {
  Express: (port) => [process.execPath, path.join(here, 'server.mjs'), port],
  FastMCP: (port) => [PYTHON, path.join(here, 'server.py'), port],
};
const stdio = [process.execPath, path.join(here, '../node/counter.mjs')];
const fronts = { ...servers, serve: (port) => [binary, 'serve', '--no-start', '--name', 'page', '--listen', `127.0.0.1:${port}`, '--', ...stdio] };

async function freePort() {
  const taken = createServer().listen(0, '127.0.0.1');
  await new Promise((ready) => { taken.once('listening', ready); });
  const { port } = taken.address();
  await new Promise((closed) => { taken.close(closed); });
  return port;
}

/** Starts a server, and waits until it says on its standard output that it listens. It ends with the test. */
async function serve(t, command, port) {
  const [program, ...words] = command(port);
  const child = spawn(program, words, { env: world.env, stdio: ['ignore', 'pipe', 'ignore'] });
  t.after(() => kill(child));
  for await (const _ of readline.createInterface({ input: child.stdout })) return child;
  throw new Error(`${words} has not listened`);
}

/** A page at the address of the server, which need not serve it. */
async function open(port) {
  const page = await (await browser.newContext()).newPage();
  await page.route(/\/(page\.js)?$/, (route) => {
    const isCode = route.request().url().endsWith('.js');
    return route.fulfill({ contentType: isCode ? 'text/javascript' : 'text/html', body: isCode ? code : HTML });
  });
  const posted = [];
  page.on('request', (request) => {
    if (request.method() === 'POST') posted.push(JSON.parse(request.postData()).method);
  });
  const call = (tool, given) => page.evaluate(([tool, given]) => window.call(tool, given), [tool, given]);
  const heard = listening(page);
  await page.goto(`http://127.0.0.1:${port}/`);
  const begun = await heard.next('connected');
  await heard.next('ready');
  return { page, posted, call, begun, ...heard };
}

/** What a page tells, in order; `next` waits for the next one that has this name. */
function listening(page) {
  const told = [];
  let taken = 0;
  let news = () => undefined;
  page.on('console', (message) => {
    if (!message.text().startsWith('{')) return;
    told.push(JSON.parse(message.text()));
    news();
  });
  return {
    told,
    async next(name) {
      for (;;) {
        while (taken < told.length) if (name in told[taken++]) return told[taken - 1];
        await new Promise((come) => { news = come; });
      }
    },
  };
}

for (const [name, command] of Object.entries(servers)) {
  const language = name === 'Express' ? 'TypeScript' : 'Python';
  test(`${name}: a page that is reloaded in the middle of a call`, { timeout: 120_000 }, async (t) => {
    const port = await freePort();
    let server = await serve(t, command, port);
    const { page, posted, call, begun, told, next } = await open(port);
    assert.deepEqual([begun.resumed, begun.calls], [false, []]);
    await call('visit');
    assert.equal((await next('answer')).answer, `${language}: visit 1 of page`);
    const gate = path.join(folder, `gate-${name}`);
    await call('count', { gate });
    while ((await next('progress')).progress < 3);

    await page.reload();
    assert.deepEqual(await next('connected'), { connected: begun.connected, resumed: true, calls: ['count'] });
    await next('ready');
    await call('visit');
    assert.equal((await next('answer')).answer, `${language}: visit 2 of page`);
    writeFileSync(gate, '');
    assert.deepEqual(await next('answer'), { name: 'count', answer: '6' });
    const heard = told.filter(({ called }) => called === 'count').map(({ progress }) => progress);
    assert.deepEqual(heard, [1, 2, 3, 4, 5, 6], 'each number once, over both loads');

    await call('hang');
    await next('progress');
    await page.reload();
    assert.deepEqual((await next('connected')).calls, ['hang']);
    await next('ready');
    await kill(server);
    server = await serve(t, command, port);
    assert.match((await next('answer')).answer, /^-32000: .*outcome of this call is unknown/);
    await call('visit');
    assert.equal((await next('answer')).answer, `${language}: visit 3 of page`);
    for (const method of ['initialize', 'notifications/initialized'])
      assert.equal(posted.filter((one) => one === method).length, 1, method);
  });
}

/** How many notifications there are, and how often the page is reloaded among them. */
const [TICKS, RELOADS] = [400, 8];

for (const [name, command] of Object.entries(fronts)) {
  test(`${name}: a page that is reloaded among notifications hears each once`, { timeout: 120_000 }, async (t) => {
    const port = await freePort();
    await serve(t, command, port);
    const { page, posted, call, begun, next } = await open(port);
    await call('ticks', { n: TICKS, ms: 15 });
    for (let reload = 1; reload <= RELOADS; reload++) {
      while ((await next('heard')).heard < (reload * TICKS) / (RELOADS + 2));
      await page.reload();
      assert.equal((await next('connected')).connected, begun.connected);
    }
    while ((await next('heard')).heard < TICKS);
    const heard = await page.evaluate(() => sessionStorage.heard.trim().split(' ').map(Number));
    assert.deepEqual(heard, Array.from({ length: TICKS }, (_, at) => at + 1));
    assert.deepEqual(posted, ['initialize', 'notifications/initialized', 'tools/call']);
  });
}

assert.ok(existsSync(PYTHON), 'no environment with FastMCP: run client/python/test first');
