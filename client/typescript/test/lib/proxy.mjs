// What stands between client and server, and does something after so many bytes of answers.
import net from 'node:net';

/** Passes bytes on to a port. */
export class Proxy {
  #fuse;
  #pairs = new Set();

  constructor(port) {
    this.server = net.createServer((near) => {
      const far = net.connect(port, '127.0.0.1');
      const pair = [near, far];
      this.#pairs.add(pair);
      const end = () => {
        this.#pairs.delete(pair);
        near.destroy();
        far.destroy();
      };
      for (const side of pair) side.on('error', end).on('close', end);
      near.pipe(far);
      far.on('data', (bytes) => {
        const fuse = this.#fuse;
        if (!fuse || (fuse.left -= bytes.length) > 0) return void near.write(bytes);
        this.#fuse = undefined;
        // What comes before arrives, and what comes after it unless the connection is cut.
        const at = Math.max(0, bytes.length + fuse.left);
        near.write(bytes.subarray(0, at), () => {
          fuse.burn(end);
          if (!near.destroyed) near.write(bytes.subarray(at));
        });
      });
    });
  }

  async listen() {
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${this.server.address().port}/mcp`;
  }

  /** After so many bytes of answers `burn` is called once, with a function that cuts the connection. */
  light(bytes, burn) {
    this.#fuse = { left: bytes, burn };
  }

  close() {
    for (const [near, far] of this.#pairs) {
      near.destroy();
      far.destroy();
    }
    this.server.close();
  }
}
