// Calls on a connection that may break at any moment: each is repeated until its deadline.
import { type Connection, Disconnected } from './connection.js';
import { isCode, SessiondError } from './errors.js';
import type { Options } from './options.js';
import { pause, type Deadline } from './deadline.js';
import { connect } from './connect.js';

/**
 * The pause after a broken connection, in ms, so that a daemon that breaks each one does not cause a busy
 * loop.
 */
const BROKEN_PAUSE_MS = 5;
/** When to try again after the daemon went during a call and did not come back in time, in ms. */
const AWAY_MS = 1_000;
/**
 * Calls under way on one connection: somewhat fewer than a daemon takes by default, so that it need not
 * refuse any.
 */
const REQUESTS_MAX = 24;

/** One call. */
export interface Call {
  method: string;
  /** The parameters. Asked for again at each attempt, since a lease or a daemon may be another by then. */
  params: (connection: Connection) => object | Promise<object>;
  /** Whether anybody still waits for the answer: `Cancelled` once it is aborted. */
  signal?: AbortSignal | undefined;
}

/** A connection that is made anew when it breaks. */
export class RetryingClient {
  readonly #options: Options;
  /** Whether a daemon has answered before, on whichever connection. */
  readonly #daemon: { seen: boolean };
  #connection: Connection | undefined;
  #connecting: Promise<Connection> | undefined;
  #free = REQUESTS_MAX;
  readonly #queue: (() => void)[] = [];

  constructor(options: Options, daemon = { seen: false }) {
    this.#options = options;
    this.#daemon = daemon;
  }

  /** Another connection to the same daemon. */
  another(): RetryingClient {
    return new RetryingClient(this.#options, this.#daemon);
  }

  /** The current connection, or a new one. */
  async connect(deadline: Deadline): Promise<Connection> {
    if (this.#connection && !this.#connection.isEnded) return this.#connection;
    this.#connecting ??= connect(this.#options, this.#daemon.seen, deadline)
      .then((connection) => {
        this.#daemon.seen = true;
        this.#connection = connection;
        return connection;
      })
      .finally(() => {
        this.#connecting = undefined;
      });
    return await deadline.bound(this.#connecting);
  }

  /** Ends the connection. The next call makes another. */
  hangUp(): void {
    this.#connection?.close();
    this.#connection = undefined;
  }

  /** Whether a call would be sent at once. */
  get hasRoom(): boolean {
    return this.#free > 0;
  }

  /**
   * One call, over as many connections as it takes, and as often as the daemon asks to be asked again.
   * Rejects with a {@link SessiondError}.
   */
  async call(call: Call, deadline: Deadline): Promise<unknown> {
    await this.#acquire(deadline);
    try {
      return await this.#repeat(call, deadline);
    } finally {
      this.#release();
    }
  }

  /** The same for a call that others wait for, which may have taken all of the room. */
  callFirst(call: Call, deadline: Deadline): Promise<unknown> {
    return this.#repeat(call, deadline);
  }

  async #repeat({ method, params, signal }: Call, deadline: Deadline): Promise<unknown> {
    // Whether a connection broke while the call was under way, or the daemon could not tell.
    let doubt: SessiondError | undefined;
    for (;;) {
      let connection: Connection | undefined;
      let wait: number;
      try {
        connection = await this.connect(deadline);
        const given = await params(connection);
        return await deadline.bound(connection.call(method, given, signal));
      } catch (error) {
        if (error instanceof Disconnected) {
          doubt ??= new SessiondError('outcome_unknown', 'the daemon went away before it had answered', {
            retry_after_ms: AWAY_MS,
          });
          wait = BROKEN_PAUSE_MS;
        } else if (isCode(error, 'unavailable', 'outcome_unknown')) {
          if (error.code === 'outcome_unknown') doubt = error;
          wait = error.retryAfterMs ?? AWAY_MS;
        } else {
          // A call that is not answered in time would be answered on this connection, to nobody.
          if (isCode(error, 'no_answer') && connection) this.#forget(connection);
          throw isCode(error, 'not_connected') && doubt ? doubt : error;
        }
        if (wait >= deadline.left) throw doubt ?? error;
      }
      await pause(wait);
    }
  }

  #forget(connection: Connection): void {
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    connection.retire();
  }

  async #acquire(deadline: Deadline): Promise<void> {
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    let admit = (): void => undefined;
    const admitted = new Promise<void>((resolve) => {
      admit = resolve;
    });
    this.#queue.push(admit);
    try {
      await deadline.bound(admitted);
    } catch (error) {
      const at = this.#queue.indexOf(admit);
      // It was admitted in the meantime: it makes room for the next one.
      if (at >= 0) this.#queue.splice(at, 1);
      else this.#release();
      throw error;
    }
  }

  #release(): void {
    const next = this.#queue.shift();
    if (next) next();
    else this.#free++;
  }
}
