// The line to the daemon: one connection for calls that are answered at once, and others for those that wait.
import { Calls, type Call } from './calls.js';
import { CALL_TIMEOUT_MS, type Options } from './options.js';
import { Patience } from './patience.js';

/**
 * Connections for calls that wait. With the first one, and somebody else's of this process, fewer than a
 * daemon lets a process have.
 */
const LANES_MAX = 40;

/** What all sessions of one owner share. */
export class Line {
  readonly options: Options;
  readonly calls: Calls;
  readonly #lanes: Calls[] = [];

  constructor(options: Options) {
    this.options = options;
    this.calls = new Calls(options);
  }

  /** How long one call may take, in ms. */
  get timeoutMs(): number {
    return this.options.timeoutMs ?? CALL_TIMEOUT_MS;
  }

  /** A call that is answered at once. */
  call(call: Call): Promise<unknown> {
    return this.calls.call(call, new Patience(this.timeoutMs));
  }

  /** A call that may wait for `ms`. It keeps no other call waiting. */
  wait(call: Call, ms: number): Promise<unknown> {
    return this.#lane().call(call, new Patience(ms + this.timeoutMs));
  }

  /** Ends all connections. The next call makes others. */
  hangUp(): void {
    for (const calls of [this.calls, ...this.#lanes]) calls.hangUp();
  }

  #lane(): Calls {
    const free = this.#lanes.find((lane) => lane.hasPlace);
    if (free) return free;
    if (this.#lanes.length < LANES_MAX) this.#lanes.push(this.calls.beside());
    // In turn, so that all queues are about as long.
    else this.#lanes.push(this.#lanes.shift()!);
    return this.#lanes.at(-1)!;
  }
}
