// The lease of an instance: claimed, and claimed again on every new connection.
import type { Connection } from './connection.js';
import { isCode, SessiondError } from './errors.js';
import type { Connections } from './connections.js';
import type { TokenLog } from './log.js';
import type { ClaimOptions } from './options.js';
import { Deadline } from './deadline.js';
import { present, type Wire } from './wire.js';

/** How an instance came to its session (proto/PROTOCOL.md, "Claimed"). */
export type Outcome =
  | 'held'
  | 'resumed'
  | 'fresh_first'
  | 'fresh_held'
  | 'fresh_plural'
  | 'fresh_never'
  | 'fresh_doubtful';

/** A lease. */
export interface Lease {
  session: string;
  /** 64 bits, as text. */
  epoch: string;
  outcome: Outcome;
  /** The connection that it was claimed on: on another one it is claimed again before it is used. */
  connection: Connection | undefined;
}

/** What a claim is answered. */
export interface Claimed extends Lease {
  because: string | undefined;
  tokenStatus: 'absent' | 'present' | 'corrupted';
  token: Uint8Array | undefined;
}

/**
 * The leases of one instance, one at a time. Its calls are made one after the other, and reject with a {@link
 * SessiondError}.
 */
export class Leases {
  lease: Lease | undefined;
  readonly #request: Wire;
  #claiming: Promise<Lease> | undefined;

  constructor(
    readonly connections: Connections,
    options: ClaimOptions,
    readonly log: TokenLog,
  ) {
    const { label, client, entry, siblings, instance } = options;
    this.#request = present({ label, client, entry, siblings, instance });
  }

  /** Claims, and takes down what was got. `fresh`: in place of what would be got. */
  async claim(fresh = false): Promise<Claimed> {
    const deadline = new Deadline(this.connections.timeoutMs);
    let on: Connection | undefined;
    const params = (connection: Connection) => {
      on = connection;
      // A daemon that was suspended must not grant a lease later, when nobody waits for it any more.
      return present({ ...this.#request, fresh: fresh || undefined, until_ms: deadline.monotonic });
    };
    const claimed = (await this.connections.calls.callFirst({ method: 'claim', params }, deadline)) as Wire;
    if (claimed['token_status'] === 'corrupted') this.log.corrupted();
    const { session, epoch, outcome } = claimed as { session: string; epoch: string; outcome: Outcome };
    // How the process came to its session says more than that it still has it.
    const known = this.lease?.session === session && outcome === 'held' ? this.lease.outcome : outcome;
    this.lease = { session, epoch, outcome: known, connection: on };
    const token = claimed['token'] as string | undefined;
    return {
      ...this.lease,
      outcome,
      because: claimed['because'],
      tokenStatus: claimed['token_status'],
      token: token === undefined ? undefined : new Uint8Array(Buffer.from(token, 'base64')),
    };
  }

  /**
   * Claims what this instance had, or, if it had nothing, what there is. A session that is neither the former
   * one nor a fresh one is a sibling's, with a token that must not be overwritten: `no_session`.
   */
  async reclaim(): Promise<Lease> {
    const former = this.lease;
    const claimed = await this.claim();
    if (!former || former.session === claimed.session || !isFormer(claimed)) return this.lease!;
    this.lease = former;
    former.connection = undefined;
    await this.#releaseOf(claimed).catch(() => undefined);
    throw new SessiondError(
      'no_session',
      "this instance's session was lost; the next instance starts afresh",
    );
  }

  /** Stores a token, in base64. Whether that resumed the session. */
  async store(token: string): Promise<boolean> {
    const params = async (connection: Connection) => {
      const { session, epoch } = await this.#leaseOn(connection);
      return { session, epoch, token };
    };
    const call = async () =>
      ((await this.connections.call({ method: 'store_token', params })) as Wire)['resumed'] as boolean;
    try {
      return await call();
    } catch (error) {
      if (!isCode(error, 'stale_epoch', 'lease_ended', 'unknown_session')) throw error;
      await this.reclaim();
      return await call();
    }
  }

  /** Deletes the token that came with the lease. */
  async reject(): Promise<void> {
    const refused = this.lease!;
    const params = async (connection: Connection) => {
      const { session, epoch } = await this.#leaseOn(connection);
      // Under a lease that is not the one that the token came with, there may be a token that nobody refused.
      if (session !== refused.session || epoch !== refused.epoch) throw new AnotherLease();
      return { session, epoch };
    };
    try {
      await this.connections.call({ method: 'reject_token', params });
    } catch (error) {
      if (error instanceof AnotherLease) return;
      if (!isCode(error, 'stale_epoch', 'lease_ended', 'unknown_session')) throw error;
      // For the same reason. The next store claims again.
      this.lease = { ...refused, connection: undefined };
    }
  }

  /** Ends the lease. */
  async release(): Promise<void> {
    const { lease } = this;
    this.lease = undefined;
    if (lease) await this.#releaseOf(lease);
  }

  /** The epoch of a session that this instance has. */
  async epochOf(session: string): Promise<string> {
    if (!this.lease)
      throw new SessiondError('lease_ended', 'this process does not hold the session any more');
    const lease = await this.#leaseOn(
      await this.connections.calls.connect(new Deadline(this.connections.timeoutMs)),
    );
    if (lease.session !== session)
      throw new SessiondError('unknown_session', 'another session has taken its place');
    return lease.epoch;
  }

  /** The lease, claimed on this connection: a claim for an ancestor has to be repeated on each connection. */
  async #leaseOn(connection: Connection): Promise<Lease> {
    if (this.lease?.connection === connection) return this.lease;
    // Of many calls on a new connection one claims, for all.
    this.#claiming ??= this.reclaim().finally(() => {
      this.#claiming = undefined;
    });
    return this.#claiming;
  }

  async #releaseOf({ session, epoch }: Lease): Promise<void> {
    const release = { method: 'release', params: () => ({ session, epoch }) };
    await this.connections.calls.callFirst(release, new Deadline(this.connections.timeoutMs));
  }
}

/** The lease is not the one that a token came with. */
class AnotherLease extends Error {}

/**
 * Whether the session was a former instance's. `held` may be the repetition of a claim whose answer was lost.
 */
function isFormer({ outcome, tokenStatus }: Claimed): boolean {
  return outcome === 'resumed' || (outcome === 'held' && tokenStatus !== 'absent');
}
