// A client of a session: there until it is detached, whatever becomes of connections and daemons.
import type { Connection } from './connection.js';
import { SessiondError } from './errors.js';
import type { Connections } from './connections.js';
import type { SessionRef } from './session-calls.js';

/**
 * The pauses before a client is attached again, in ms: after a broken connection, and while the daemon is
 * away.
 */
const BROKEN_PAUSE_MS = 5;
const RETRY_MS = 5_000;

/**
 * A client that has come to a session. While it is not detached it is attached again whenever the connection
 * was lost.
 */
export class Attachment {
  #detached = false;
  #connection: Connection | undefined;

  private constructor(
    readonly connections: Connections,
    readonly ref: () => Promise<SessionRef>,
  ) {}

  /** Attaches. @internal */
  static async make(connections: Connections, ref: () => Promise<SessionRef>): Promise<Attachment> {
    const attachment = new Attachment(connections, ref);
    await attachment.#attach();
    return attachment;
  }

  /** The client goes, and the daemon knows of it when this returns, if it is there. */
  async detach(): Promise<void> {
    if (this.#detached) return;
    this.#detached = true;
    // Where the connection has broken, the client has gone with it.
    if (this.#connection?.isEnded !== false) return;
    await this.#connection.call('detach_session', await this.ref()).catch(() => undefined);
  }

  async #attach(): Promise<void> {
    const params = async (connection: Connection) => {
      this.#connection = connection;
      return this.ref();
    };
    await this.connections.call({ method: 'attach_session', params });
    void this.#connection?.ended.then(() => this.#reattach(BROKEN_PAUSE_MS));
  }

  #reattach(ms: number): void {
    const timer = setTimeout(() => {
      if (this.#detached) return;
      this.#attach().catch((error: unknown) => {
        // A session that has ended has no clients any more.
        if (error instanceof SessiondError && error.passes) this.#reattach(RETRY_MS);
      });
    }, ms);
    timer.unref();
  }
}
