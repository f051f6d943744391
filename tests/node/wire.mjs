// The SDK's stdio transport that also keeps every line as it went over the pipes.
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { serializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js';

const NEWLINE = 10;

export class Wire extends StdioClientTransport {
  // Lines in the order in which they were seen, each as { from, bytes } without its newline.
  lines = [];
  #unfinished = Buffer.alloc(0);
  #waiting = new Set();

  start() {
    // The SDK spawns before it returns, so no byte can have been read by now.
    const started = super.start();
    this._process.stdout.prependListener('data', (chunk) => this.#read(chunk));
    return started;
  }

  send(message) {
    // What the SDK writes is what this function returns, and nothing else.
    const line = Buffer.from(serializeMessage(message));
    this.lines.push({ from: 'client', bytes: line.subarray(0, -1) });
    return super.send(message);
  }

  /// Waits until the server has said a line with this text in it, from the line numbered `since` on.
  until(text, since = 0) {
    const said = ({ from, bytes }) => from === 'server' && bytes.includes(text);
    if (this.lines.slice(since).some(said)) return undefined;
    return new Promise((resolve) => this.#waiting.add({ said, resolve }));
  }

  /// What the server wrote after its last newline. A server that ends well leaves nothing.
  get unfinished() {
    return this.#unfinished;
  }

  #read(chunk) {
    let rest = Buffer.concat([this.#unfinished, chunk]);
    for (let end; (end = rest.indexOf(NEWLINE)) >= 0; rest = rest.subarray(end + 1)) {
      const line = { from: 'server', bytes: rest.subarray(0, end) };
      this.lines.push(line);
      for (const waiter of this.#waiting) {
        if (!waiter.said(line)) continue;
        this.#waiting.delete(waiter);
        waiter.resolve();
      }
    }
    this.#unfinished = rest;
  }
}
