// One session, and its life. What it contains is in session-state.ts, session-events.ts and session-tasks.ts.
import { Attachment } from './attachment.js';
import type { Connection } from './connection.js';
import { isCode } from './errors.js';
import { SessionTasks } from './session-tasks.js';
import type { Caller, Minted, SessionView, Update } from './types.js';
import {
  credential,
  fromView,
  jsonText,
  present,
  requestId,
  toLifetimes,
  toStatus,
  type Wire,
} from './wire.js';

/** How long a credential stays good that was rotated out, in ms: longer than a request is under way. */
const GRACE_MS = 60_000;

/**
 * A session of a host's or of a service's. Calls may be made without waiting for others. One whose answer is
 * lost is made again without further effect: a message is not appended twice. Every call rejects with a
 * {@link SessiondError}; beside the codes that each names there are those of every change: `unknown_session`,
 * `session_terminated`, `binding_mismatch`, `quota_exceeded`, and where a host owns it `stale_epoch` and
 * `lease_ended`.
 */
export class Session extends SessionTasks {
  /** The same session, asked for by this caller. Where it is bound to another, calls are refused. */
  onBehalfOf(caller: Caller | undefined): Session {
    return new Session(this.line, this.id, this.hold, caller);
  }

  /** The session as it is now, also when it was terminated. */
  async view(): Promise<SessionView> {
    return fromView((await this.read('get_session')) as Wire);
  }

  /**
   * Changes status, metadata or lifetimes. `invalid_argument` for the status `terminated`: {@link terminate}
   * ends a session.
   */
  async update({ status, metadata, lifetimes }: Update): Promise<SessionView> {
    const fields = present({
      status: toStatus(status),
      lifetimes: toLifetimes(lifetimes),
      metadata: metadata === undefined ? undefined : jsonText(metadata),
    });
    return fromView((await this.change('update_session', fields)) as Wire);
  }

  /** Says that the session is in use, which every other call does, too. */
  async touch(): Promise<void> {
    await this.call({ method: 'touch_session', params: () => this.named() });
  }

  /** Empties the session: state, streams and events go, and former event ids are nothing any more. */
  async reset(): Promise<SessionView> {
    const request = requestId();
    const params = async (connection: Connection) => ({
      ...(await this.named()),
      ...(connection.hello.takesRequests ? { request } : {}),
    });
    return fromView((await this.call({ method: 'reset_session', params })) as Wire);
  }

  /** Ends the session, once and for all. What is left says so, for a while. */
  async terminate(): Promise<void> {
    let tries = 0;
    const params = () => {
      tries++;
      return this.named();
    };
    try {
      await this.call({ method: 'terminate_session', params });
    } catch (error) {
      // A host's session that has ended is none of its sessions, to whoever would change it.
      if (!(tries > 1 && isCode(error, 'unknown_session'))) throw error;
    }
  }

  /** A client has come: the grace period stops, until the attachment is detached or this process exits. */
  attach(): Promise<Attachment> {
    return Attachment.make(this.line, () => this.named());
  }

  /**
   * Binds the session to a new credential, of which only the hash is sent. The former one stays good for a
   * minute at least. This object asks by the new one from now on. `invalid_argument` where it is bound to no
   * credential.
   */
  async rotateCredential(secret: string | Uint8Array): Promise<void> {
    const caller = credential(secret);
    // The call may be repeated as the former caller, which must not have become a stranger by then.
    const grace = Math.max(GRACE_MS, this.line.timeoutMs * 2);
    await this.change('rotate_credential', {
      hash: (caller as { hash: string }).hash,
      grace_ms: String(grace),
    });
    this.caller = caller;
  }

  /**
   * Makes a handle, by which `Sessions.openHandle` finds the session again. `lifeMs`: at most what is
   * configured.
   */
  async mintHandle(lifeMs?: number): Promise<Minted> {
    const life = lifeMs === undefined ? undefined : String(lifeMs);
    const { handle, expires_ms } = (await this.change('mint_handle', present({ life_ms: life }))) as Wire;
    return { handle, expiresMs: Number(expires_ms) };
  }
}
