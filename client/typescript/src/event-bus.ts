// The `ServerEventBus` of the SDK's v2: what one process publishes, the subscribers of every process of a
// service hear.
import { isCode } from './errors.js';
import { warner, type Options, type Warn } from './options.js';
import { pause } from './deadline.js';
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

/** Listening to the events of all processes, while anybody does. */
interface Hearing {
  readonly stop: AbortController;
  /** The number of the last event before those that listeners hear. Undefined until the daemon has told it. */
  after: bigint | undefined;
}

class Bus<E> implements EventBus<E> {
  readonly #sessions: Sessions;
  readonly #warn: Warn;
  readonly #listeners = new Set<(event: E) => void>();
  #hearing: Hearing | undefined;
  /** Events are published one after the other. */
  #last: Promise<void> = Promise.resolve();
  #failing = false;

  constructor({ service, ...options }: EventBusOptions) {
    this.#sessions = Sessions.ofService(service, options);
    this.#warn = warner(options.log);
  }

  publish(event: E): void {
    this.#last = this.#last.then(() => this.#append(event));
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
      const session = await this.#session();
      // Who has subscribed before hears it.
      if (this.#hearing) await begin(this.#hearing, session);
      await session.standalone.append(event);
      this.#failing = false;
    } catch (error) {
      this.#unheard(error);
      this.#tell(event);
    }
  }

  #hear(): Hearing {
    const hearing: Hearing = { stop: new AbortController(), after: undefined };
    void this.#follow(hearing);
    return hearing;
  }

  async #follow(hearing: Hearing): Promise<void> {
    const { signal } = hearing.stop;
    while (!signal.aborted) {
      try {
        const session = await this.#session();
        const number = await begin(hearing, session);
        const { events, next } = await session.wait([{ number }], WAIT_MS, signal);
        if (signal.aborted) return;
        for (const { json } of events) this.#tell(JSON.parse(json) as E);
        const [place] = next;
        if (place && 'number' in place) hearing.after = place.number;
        this.#failing = false;
      } catch (error) {
        // The session has ended, and the next one numbers its events from 1.
        if (isCode(error, 'unknown_session', 'session_terminated', 'unknown_cursor')) hearing.after = 0n;
        else this.#unheard(error);
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
        this.#warn(`a listener has failed: ${String(error)}`);
      }
    }
  }

  #unheard(error: unknown): void {
    if (!this.#failing) this.#warn(`other processes do not hear of changes: ${String(error)}`);
    this.#failing = true;
  }
}

/** Where listeners begin to hear. It is the same place for whoever asks first: a follower, or an event. */
async function begin(hearing: Hearing, session: Session): Promise<bigint> {
  if (hearing.after === undefined) {
    const { lastNumber } = await session.view();
    hearing.after ??= lastNumber;
  }
  return hearing.after;
}
