// The `ServerEventBus` of the SDK's v2: what one process publishes, the subscribers of every process of a
// service hear.
import { isCode } from './errors.js';
import { toStandardError, type Logger, type Options } from './options.js';
import { pause } from './patience.js';
import type { Session } from './session.js';
import { Sessions } from './sessions.js';

/** The session whose standalone stream has the events. */
const SESSION = 'mcp.events';
/** How long it lives after its last use, in ms: it has nothing but events that were heard. */
const IDLE_MS = 24 * 3600_000;
/** The longest wait for an event, in ms. */
const WAIT_MS = 25_000;
/** The pause while the daemon is away, in ms. */
const RETRY_MS = 1_000;

/** What the SDK's `createMcpHandler` takes as `bus`. `E`: its `ServerEvent`. */
export interface EventBus<E = any> {
  /**
   * Tells every listener of every process. Never throws: where the daemon is away, the listeners of this
   * process hear it.
   */
  publish(event: E): void;
  /** Registers a listener. Returns a function that takes it away again. */
  subscribe(listener: (event: E) => void): () => void;
}

/** How a bus works. */
export interface EventBusOptions extends Options {
  /** The service whose processes hear each other: 1 to 128 visible ASCII characters. */
  service: string;
}

/**
 * A bus for `createMcpHandler` of `@modelcontextprotocol/server`: with several processes, a client that
 * listens at one of them hears of changes that another has made. A listener hears each event once, in the
 * order in which they were published.
 *
 * ```ts
 * const handler = createMcpHandler(createServer, { bus: eventBus({ service: 'shop' }) });
 * ```
 */
export function eventBus<E = any>(options: EventBusOptions): EventBus<E> {
  return new Bus<E>(options);
}

class Bus<E> implements EventBus<E> {
  readonly #sessions: Sessions;
  readonly #log: Logger;
  readonly #listeners = new Set<(event: E) => void>();
  #hearing: { stop: AbortController; ready: Promise<void> } | undefined;
  /** Events are published one after the other. */
  #last: Promise<void> = Promise.resolve();
  #failing = false;

  constructor({ service, log = toStandardError, ...options }: EventBusOptions) {
    this.#sessions = Sessions.ofService(service, { log, ...options });
    this.#log = log;
  }

  publish(event: E): void {
    // Who has subscribed before hears it.
    this.#last = Promise.all([this.#last, this.#hearing?.ready]).then(() => this.#append(event));
  }

  subscribe(listener: (event: E) => void): () => void {
    // The same function may be registered twice.
    const own = (event: E) => listener(event);
    this.#listeners.add(own);
    this.#hearing ??= this.#hear();
    return () => {
      this.#listeners.delete(own);
      if (this.#listeners.size > 0) return;
      this.#hearing?.stop.abort();
      this.#hearing = undefined;
    };
  }

  async #append(event: E): Promise<void> {
    try {
      const append = async () => (await this.#session()).standalone.append(event);
      await append();
      this.#failing = false;
    } catch (error) {
      this.#warn(error);
      this.#tell(event);
    }
  }

  #hear(): { stop: AbortController; ready: Promise<void> } {
    const stop = new AbortController();
    let begun = (): void => undefined;
    const ready = new Promise<void>((resolve) => {
      begun = resolve;
    });
    void this.#follow(stop.signal, begun);
    return { stop, ready };
  }

  async #follow(signal: AbortSignal, begun: () => void): Promise<void> {
    let after: bigint | undefined;
    while (!signal.aborted) {
      try {
        const session = await this.#session();
        after ??= (await session.view()).lastNumber;
        begun();
        const { events, next } = await session.wait([{ number: after }], WAIT_MS, signal);
        if (signal.aborted) return;
        for (const { json } of events) this.#tell(JSON.parse(json) as E);
        const [place] = next;
        if (place && 'number' in place) after = place.number;
        this.#failing = false;
      } catch (error) {
        begun();
        // The session has ended, and the next one numbers its events from 1.
        if (isCode(error, 'unknown_session', 'session_terminated', 'unknown_cursor')) after = 0n;
        else this.#warn(error);
        await pause(RETRY_MS);
      }
    }
  }

  async #session(): Promise<Session> {
    const open = () => this.#sessions.open(SESSION);
    try {
      return await open();
    } catch (error) {
      if (!isCode(error, 'unknown_session')) throw error;
    }
    const made = this.#sessions.create({
      id: SESSION,
      status: { is: 'ready' },
      lifetimes: { idleMs: IDLE_MS },
    });
    return made.catch((error: unknown) => {
      // Another process has made it just now.
      if (!isCode(error, 'already_exists')) throw error;
      return open();
    });
  }

  #tell(event: E): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(event);
      } catch (error) {
        this.#log('warn', `mcp-sessiond: a listener has failed: ${String(error)}`);
      }
    }
  }

  #warn(error: unknown): void {
    if (!this.#failing)
      this.#log('warn', `mcp-sessiond: other processes do not hear of changes: ${String(error)}`);
    this.#failing = true;
  }
}
