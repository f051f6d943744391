// Requests that are refused: with which status of HTTP, and in which words. They are those of `mcp-sessiond
// serve`.
import type { ServerResponse } from 'node:http';
import { SessiondError } from '../errors.js';
import type { Id } from './request-ids.js';
import type { Message } from './sdk.js';

const CONNECTION = -32000;
const NO_SESSION = -32001;
const INVALID = -32600;
const NO_METHOD = -32601;
const INVALID_PARAMS = -32602;
const NO_JSON = -32700;

/** Why a request is not carried out, as an HTTP response says it: a status, and a JSON-RPC error as body. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: number,
    message: string,
    readonly headers: Record<string, string> = {},
    /** The request that it answers, where that is known. */
    readonly id: string | number | null = null,
  ) {
    super(message);
  }

  static invalid(message: string): Refusal {
    return new Refusal(400, INVALID, message);
  }

  static noJson(): Refusal {
    return new Refusal(400, NO_JSON, 'the body is not JSON');
  }

  /**
   * A value that JSON does not have, though JavaScript and Python do. Under the id of the request where that is
   * clear: some clients give up the session at any other status than 200.
   */
  static notJson(name: string, id: string | number | undefined): Refusal {
    const why = `\`${name}\` is not JSON: leave it out, or send null or a string`;
    return id === undefined ? new Refusal(400, NO_JSON, why) : new Refusal(200, INVALID_PARAMS, why, {}, id);
  }

  static tooLarge(most: number): Refusal {
    return new Refusal(413, CONNECTION, `the body has more than ${most} bytes`);
  }

  static noSession(): Refusal {
    return Refusal.invalid('the header `Mcp-Session-Id` is missing: send `initialize` first');
  }

  static unknownSession(): Refusal {
    return new Refusal(
      404,
      NO_SESSION,
      'there is no such session, or it has ended: send `initialize` without a session id',
    );
  }

  /**
   * Of all answers to `server/discover` it is the one after which every official client sends `initialize`.
   */
  static noDiscover(): Refusal {
    return new Refusal(404, NO_METHOD, 'the server does not speak MCP 2026-07-28: begin with `initialize`');
  }

  static notAcceptable(): Refusal {
    return new Refusal(406, CONNECTION, 'Not Acceptable: Client must accept text/event-stream');
  }

  static notJsonType(): Refusal {
    return new Refusal(415, CONNECTION, 'Unsupported Media Type: Content-Type must be application/json');
  }

  static notAllowed(): Refusal {
    return new Refusal(405, CONNECTION, 'Method not allowed.', { Allow: 'GET, POST, DELETE' });
  }

  static forNow(message: string, retryAfterMs = 1_000): Refusal {
    return new Refusal(503, CONNECTION, message, {
      'Retry-After': String(Math.max(1, Math.ceil(retryAfterMs / 1_000))),
    });
  }

  /** The refusal that an error comes to. It names no path of the server's, and no value of the session's. */
  static of(error: unknown): Refusal {
    if (error instanceof Refusal) return error;
    if (!(error instanceof SessiondError)) return new Refusal(500, CONNECTION, 'the server has failed');
    switch (error.code) {
      case 'unavailable':
        return Refusal.forNow("the daemon mcp-sessiond can't do this now", error.retryAfterMs);
      case 'outcome_unknown':
        return Refusal.forNow(
          'the daemon mcp-sessiond went away before it had answered: the outcome is unknown',
          error.retryAfterMs,
        );
      case 'not_connected':
      case 'no_answer':
        return Refusal.forNow("the daemon mcp-sessiond can't be reached");
      case 'quota_exceeded':
        return Refusal.forNow(error.message);
      case 'unknown_session':
      case 'session_terminated':
      // Another caller does not learn that there is such a session.
      case 'binding_mismatch':
        return Refusal.unknownSession();
      case 'unknown_cursor':
        return Refusal.invalid('this event id names no place in this session');
      default:
        return new Refusal(error.httpStatus, error.httpStatus === 400 ? INVALID : CONNECTION, error.message);
    }
  }

  /** Answers a request with it, unless the answer has begun. */
  answer(response: ServerResponse): void {
    if (response.headersSent) {
      response.end();
      return;
    }
    const body = JSON.stringify({
      jsonrpc: '2.0',
      error: { code: this.code, message: this.message },
      id: this.id,
    });
    response.writeHead(this.status, { 'Content-Type': 'application/json', ...this.headers }).end(body);
  }
}

/** The error that a call gets whose server ended before it had answered. `serve` sends the same. */
export function outcomeUnknown(id: Id): Message {
  const message = 'the server ended before it had answered: the outcome of this call is unknown';
  return { jsonrpc: '2.0', id, error: { code: CONNECTION, message, data: { outcome: 'unknown' } } };
}

/** What a client gets that comes back for an answer that could not be kept. */
export function notKept(id: unknown): object {
  const message = 'the call was carried out, but its answer could not be stored';
  return { jsonrpc: '2.0', id, error: { code: CONNECTION, message, data: { outcome: 'not_kept' } } };
}

/** The answer to a call that its client has cancelled. */
export function wasCancelled(id: Id): Message {
  return { jsonrpc: '2.0', id, error: { code: CONNECTION, message: 'the client has cancelled this call' } };
}
