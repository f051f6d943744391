// The connections of one owner to the daemon: one for calls that are answered at once, and others for calls that wait.
import { RetryingClient, type Call } from './retrying-client.js';
import { CALL_TIMEOUT_MS, type Options } from './options.js';
import { Deadline } from './deadline.js';

/**
 * Connections for calls that wait. With the first one, and those of other owners in this process, they are fewer
 * than the daemon allows a process.
 */
const LANES_MAX = 40;

/** The connections that all sessions of one owner share. */
export class Connections {
  readonly options: Options;
  readonly calls: RetryingClient;
  readonly #lanes: RetryingClient[] = [];

  constructor(options: Options) {
    this.options = options;
    this.calls = new RetryingClient(options);
  }

  /** How long one call may take, in ms. */
  get timeoutMs(): number {
    return this.options.timeoutMs ?? CALL_TIMEOUT_MS;
  }

  /** A call that is answered at once. */
  call(call: Call): Promise<unknown> {
    return this.calls.call(call, new Deadline(this.timeoutMs));
  }

  /** A call that may wait for `ms`. It keeps no other call waiting. */
  wait(call: Call, ms: number): Promise<unknown> {
    return this.#lane().call(call, new Deadline(ms + this.timeoutMs));
  }

  /** Ends all connections. The next call makes others. */
  hangUp(): void {
    for (const calls of [this.calls, ...this.#lanes]) calls.hangUp();
  }

  #lane(): RetryingClient {
    const free = this.#lanes.find((lane) => lane.hasRoom);
    if (free) return free;
    if (this.#lanes.length < LANES_MAX) this.#lanes.push(this.calls.another());
    // In turn, so that all queues are about as long.
    else this.#lanes.push(this.#lanes.shift()!);
    return this.#lanes.at(-1)!;
  }
}
