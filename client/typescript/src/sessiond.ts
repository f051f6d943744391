// Version 1's three calls. They carry out what a server means, and swallow what it must not have to handle.
import { isCode, SessiondError } from './errors.js';
import { hold } from './instance.js';
import { Leases, type Outcome } from './lease.js';
import { Connections } from './connections.js';
import { TokenLog } from './log.js';
import type { ClaimOptions } from './options.js';
import { Session } from './session.js';

/**
 * How long a daemon that could not be reached is left alone, in ms, so that a server is not slowed by each of
 * its calls.
 */
const RETRY_AFTER_MS = 5_000;
/** Bytes of a token. */
const TOKEN_MAX = 65_536;

/** Whether resume works for this instance. */
export type Status =
  /** Nothing was asked yet, or the lease was released. */
  | { is: 'unclaimed' }
  /**
   * The instance holds a session. `epoch`: the number of the lease. `outcome`: how it came to the session.
   */
  | { is: 'active'; session: string; epoch: bigint; outcome: Outcome }
  /** It does not work. Unless `reason.isFinal`, a later call tries again. */
  | { is: 'disabled'; reason: SessiondError };

/**
 * A server's session with the daemon, for the resume token of its broker. No call throws or rejects: without
 * daemon, directory or identity, resume is disabled, one line is logged, and the server goes on as if nothing
 * had been asked.
 *
 * ```ts
 * const sessiond = Sessiond.init();
 * const token = await sessiond.load();
 * let broker = token && await Broker.resume(token);
 * if (token && !broker) await sessiond.reject();
 * broker ??= await Broker.fresh();
 * await sessiond.store(broker.token);
 * ```
 */
export class Sessiond {
  readonly #leases: Leases;
  readonly #connections: Connections;
  readonly #log: TokenLog;
  readonly #forAnother: boolean;
  /** A token was loaded, and since then neither stored nor rejected. */
  #offered = false;
  #disabled: { reason: SessiondError; since: number } | undefined;
  #announced = false;
  /** Calls are carried out one after the other. */
  #last: Promise<unknown> = Promise.resolve();

  private constructor(options: ClaimOptions) {
    this.#connections = new Connections(options);
    this.#log = new TokenLog(options.log);
    this.#leases = new Leases(this.#connections, options, this.#log);
    this.#forAnother = options.instance !== undefined;
    // What is claimed for another process is not this one's.
    if (!this.#forAnother) hold(this, () => this.#held());
  }

  /** Takes the options. Nothing is read, opened or sent before the first call. */
  static init(options: ClaimOptions = {}): Sessiond {
    return new Sessiond(options);
  }

  /** The token that a former instance stored, to be offered to the broker. Undefined: start afresh. */
  load(): Promise<Uint8Array | undefined> {
    return this.#inTurn(undefined, async () => {
      const claimed = await this.#leases.claim();
      this.#disabled = undefined;
      if (claimed.tokenStatus === 'absent') this.#logAbsence(claimed.outcome, claimed.because);
      this.#offered = claimed.token !== undefined;
      return claimed.token;
    });
  }

  /**
   * Keeps a token that the broker issued, in place of the former one: 1 to 65,536 bytes, text as UTF-8. True
   * once the daemon has it for good. A store after {@link load}, without {@link reject}, says that the broker
   * accepted.
   */
  store(token: Uint8Array | string): Promise<boolean> {
    return this.#inTurn(false, async () => {
      const bytes = Buffer.from(token as Uint8Array);
      if (bytes.length < 1 || bytes.length > TOKEN_MAX) {
        this.#log.notKept(
          bytes.length === 0
            ? 'a resume token has at least 1 byte; this one is empty'
            : `a resume token has at most ${TOKEN_MAX} bytes; this one has ${bytes.length}`,
        );
        return false;
      }
      return this.#store(bytes);
    });
  }

  /**
   * The broker refused the token: it is deleted. The session stays. True once no later load gives that token.
   */
  reject(): Promise<boolean> {
    return this.#inTurn(false, async () => {
      // For an ancestor, another command has loaded the token, and the lease is the same.
      if (!this.#leases.lease && this.#forAnother) await this.#leases.reclaim();
      if (!this.#leases.lease) return true;
      this.#offered = false;
      this.#log.rejected();
      try {
        await this.#leases.reject();
        return true;
      } catch (error) {
        if (!(error instanceof SessiondError) || error.passes) throw error;
        this.#log.notDeleted(error.message);
        return false;
      }
    });
  }

  /**
   * Gives the session up, for the next instance with the same key. A process that exits need not: its exit is
   * noticed.
   */
  async release(): Promise<void> {
    await this.#inTurn(undefined, async () => {
      this.#offered = false;
      // Where the daemon is gone, so is the lease soon: with this process.
      await this.#leases.release().catch(() => undefined);
    });
  }

  /**
   * The session of this instance, with what it contains, claimed unless it is held. Undefined: resume does
   * not work here.
   */
  session(): Promise<Session | undefined> {
    return this.#inTurn(undefined, async () => this.#sessionOf((await this.#leases.reclaim()).session));
  }

  /**
   * Begins anew, as a server on stdio does when it is told to `initialize`: the session that this instance
   * holds, or would resume, ends with all that it contains, and this instance holds a fresh one. Undefined:
   * resume does not work here.
   */
  beginAnew(): Promise<Session | undefined> {
    return this.#inTurn(undefined, async () => {
      this.#offered = false;
      return this.#sessionOf((await this.#leases.claim(true)).session);
    });
  }

  /** Whether resume works for this instance, as of the last call. */
  get status(): Status {
    if (this.#disabled) return { is: 'disabled', reason: this.#disabled.reason };
    const { lease } = this.#leases;
    if (!lease) return { is: 'unclaimed' };
    return { is: 'active', session: lease.session, epoch: BigInt(lease.epoch), outcome: lease.outcome };
  }

  /** The session that this instance holds at the moment. */
  #held(): Session | undefined {
    const { lease } = this.#leases;
    return lease && !this.#disabled?.reason.isFinal ? this.#at(lease.session) : undefined;
  }

  #sessionOf(id: string): Session {
    this.#disabled = undefined;
    return this.#at(id);
  }

  #at(id: string): Session {
    return new Session(this.#connections, id, { epoch: () => this.#leases.epochOf(id) });
  }

  async #store(bytes: Buffer): Promise<boolean> {
    try {
      const resumed = await this.#leases.store(bytes.toString('base64'));
      this.#disabled = undefined;
      // Only what this very process was offered can have been accepted; for an ancestor, another command may
      // have been.
      if (resumed && (this.#offered || this.#forAnother)) this.#log.resumed();
      this.#offered = false;
      return true;
    } catch (error) {
      if (!(error instanceof SessiondError) || error.isFinal) throw error;
      if (isCode(error, 'unavailable')) {
        // The daemon is there, and could not: its disk is full, as a rule. One line is enough.
        this.#log.writeFailed(error.message);
        this.#announced = true;
      }
      if (error.passes) throw error;
      if (isCode(error, 'write_failed')) this.#log.writeFailed(error.message);
      else this.#log.notKept(error.message);
      return false;
    }
  }

  #logAbsence(outcome: Outcome, because: string | undefined): void {
    if (because !== undefined) this.#log.lost(because);
    else if (outcome === 'fresh_held' || outcome === 'fresh_plural') this.#log.lost('sibling');
    else if (outcome === 'fresh_never') this.#log.never();
    else if (outcome === 'fresh_doubtful') this.#log.doubtful();
    else this.#log.absent();
  }

  /** Carries a call out after those before it. `without`: its answer where resume does not work. */
  #inTurn<T>(without: T, work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(async () => {
      if (this.#disabled && !this.#isTimeToTry(this.#disabled)) return without;
      try {
        return await work();
      } catch (error) {
        this.#disable(error instanceof SessiondError ? error : new SessiondError('unknown', String(error)));
        return without;
      }
    });
    this.#last = turn;
    return turn;
  }

  #isTimeToTry({ reason, since }: { reason: SessiondError; since: number }): boolean {
    return !reason.isFinal && performance.now() - since >= RETRY_AFTER_MS;
  }

  #disable(reason: SessiondError): void {
    if (isCode(reason, 'no_verified_host')) {
      this.#log.unverified();
    } else if (!this.#announced) {
      this.#announced = true;
      this.#log.disabled(reason);
    }
    this.#offered = false;
    if (reason.isFinal) {
      this.#leases.lease = undefined;
      this.#connections.hangUp();
    }
    this.#disabled = { reason, since: performance.now() };
  }
}
