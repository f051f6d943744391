// What can go wrong, as one class with a closed list of codes.

/** The codes with which the daemon refuses, as in `proto/PROTOCOL.md`, "Errors". */
export type RefusalCode =
  | 'no_verified_host'
  | 'not_an_ancestor'
  | 'names_host'
  | 'stale_epoch'
  | 'lease_ended'
  | 'unknown_session'
  | 'already_exists'
  | 'session_terminated'
  | 'name_taken'
  | 'service_taken'
  | 'session_held'
  | 'version_conflict'
  | 'binding_mismatch'
  | 'unknown_handle'
  | 'handle_expired'
  | 'unknown_stream'
  | 'stream_closed'
  | 'unknown_cursor'
  | 'unknown_backend'
  | 'unknown_task'
  | 'task_ended'
  | 'invalid_argument'
  | 'quota_exceeded'
  | 'write_failed'
  | 'unavailable'
  | 'outcome_unknown';

/**
 * Every code of a {@link SessiondError}. Those that are not the daemon's:
 *
 * | code | means |
 * | --- | --- |
 * | `not_connected` | the daemon could not be reached in time, or was not trusted. Nothing was done |
 * | `no_answer` | the daemon did not answer in time. Whether the call was carried out is not known |
 * | `uncertain` | the answer to a conditional write was lost, and repeated it did not fit any more |
 * | `no_session` | there is no session here: not in a request, or the session was lost |
 * | `unknown` | the daemon is newer, and refused with a code that this client does not know |
 */
export type ErrorCode = RefusalCode | 'not_connected' | 'no_answer' | 'uncertain' | 'no_session' | 'unknown';

/** HTTP statuses of the codes (RFC 9110, section 15). */
const STATUS: Record<ErrorCode, number> = {
  no_verified_host: 403,
  not_an_ancestor: 403,
  names_host: 403,
  stale_epoch: 409,
  lease_ended: 409,
  unknown_session: 404,
  already_exists: 409,
  session_terminated: 404,
  name_taken: 409,
  service_taken: 409,
  session_held: 409,
  version_conflict: 409,
  binding_mismatch: 403,
  unknown_handle: 404,
  handle_expired: 410,
  unknown_stream: 400,
  stream_closed: 409,
  unknown_cursor: 400,
  unknown_backend: 400,
  unknown_task: 400,
  task_ended: 409,
  invalid_argument: 400,
  quota_exceeded: 429,
  write_failed: 507,
  unavailable: 503,
  outcome_unknown: 504,
  not_connected: 503,
  no_answer: 503,
  uncertain: 409,
  no_session: 500,
  unknown: 500,
};

/** Codes after which the same call may succeed later, without anybody changing anything. */
const PASSING: ReadonlySet<ErrorCode> = new Set([
  'unavailable',
  'outcome_unknown',
  'not_connected',
  'no_answer',
]);

/** Codes after which no later claim will find it changed. */
const FINAL: ReadonlySet<ErrorCode> = new Set([
  'no_verified_host',
  'not_an_ancestor',
  'names_host',
  'invalid_argument',
  'no_session',
]);

/** Fields of a refusal beside its code, by their names on the wire. 64-bit numbers are text. */
export type ErrorFields = Readonly<Record<string, unknown>>;

/**
 * Why a call came to nothing. Programs look at `code`; `message` is a sentence for people, without any value
 * or message.
 */
export class SessiondError extends Error {
  override readonly name = 'SessiondError';
  /** What went wrong. */
  readonly code: ErrorCode;
  /** What else the daemon told, such as `key` and `current` of a `version_conflict`. */
  readonly fields: ErrorFields;

  constructor(code: ErrorCode, message: string, fields: ErrorFields = {}) {
    super(message);
    this.code = code;
    this.fields = fields;
  }

  /** The HTTP status that a server may answer (RFC 9110, section 15). */
  get httpStatus(): number {
    return STATUS[this.code];
  }

  /**
   * Whether the same call may succeed later, without anybody changing anything: the daemon is away or busy.
   */
  get passes(): boolean {
    return PASSING.has(this.code);
  }

  /** Whether resume stays disabled: no later call will find it changed. */
  get isFinal(): boolean {
    return FINAL.has(this.code);
  }

  /** After how many ms to try again, where the daemon told. */
  get retryAfterMs(): number | undefined {
    const told = this.fields['retry_after_ms'];
    return typeof told === 'number' ? told : undefined;
  }
}

/** Whether `error` is a {@link SessiondError} with one of these codes. */
export function isCode<C extends ErrorCode>(
  error: unknown,
  ...codes: C[]
): error is SessiondError & { readonly code: C } {
  return error instanceof SessiondError && (codes as ErrorCode[]).includes(error.code);
}

/** Whether an error is of a quota of memory, so that it helps to delete something. */
export function isOfMemory(error: unknown): boolean {
  return isCode(error, 'quota_exceeded') && String(error.fields['what']).startsWith('the memory');
}

/** The error of a JSON-RPC error of the daemon's. */
export function refusal(error: {
  message: string;
  code: number;
  data?: Record<string, unknown>;
}): SessiondError {
  const { code, http_status: _, ...fields } = error.data ?? {};
  if (typeof code === 'string' && code in STATUS)
    return new SessiondError(code as ErrorCode, error.message, fields);
  // Without `data` the request never reached the service: it can't be meant as it is.
  if (error.data === undefined) return new SessiondError('invalid_argument', error.message);
  return new SessiondError('unknown', error.message, fields);
}
