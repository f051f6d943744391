// Between the wire and what calls give: names, 64-bit numbers that are text, JSON that is text.
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { SessiondError } from './errors.js';
import type {
  Appended,
  Caller,
  Cursor,
  FoundEvent,
  Json,
  Lifetimes,
  Replayed,
  SessionStatus,
  SessionView,
  StreamView,
} from './types.js';

/** An object of the wire. Unknown fields are ignored. */
export type Wire = Record<string, any>;

/** A UUID of version 7 (RFC 9562, section 5.7): the time in ms, and 74 bits of the system's generator. */
export function uuidV7(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = 0x70 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  const hex = bytes.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** A new idempotency key. */
export const requestId = (): string => randomUUID();

/** A session's id as a log may show it: the whole id gives access to the session. */
export function redacted(id: string): string {
  return `${id.slice(0, 8)}…`;
}

/**
 * A caller that is known by a credential: an API key, an opaque token. Only its hash ever leaves this
 * process.
 */
export function credential(secret: string | Uint8Array): Caller {
  return { kind: 'credential', hash: createHash('sha256').update(secret).digest('hex') };
}

/** The token of an `Authorization` header (RFC 6750, section 2.1). Undefined: there is none. */
export function bearerToken(authorization: string | null | undefined): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
}

/** A value as JSON text. Throws `invalid_argument` for what JSON has not, such as `undefined` or a bigint. */
export function jsonText(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    // Its message may quote the value.
  }
  if (text === undefined) throw new SessiondError('invalid_argument', 'the value can not be written as JSON');
  return text;
}

/** The only entry of an answer. */
export function only<T>(answers: T[]): T {
  if (answers.length !== 1)
    throw new SessiondError('unknown', 'the daemon answered with another number of entries');
  return answers[0]!;
}

/** Leaves out what is undefined, since a daemon takes no null for an absent field. */
export function present(fields: Wire): Wire {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

export function toLifetimes(lifetimes: Lifetimes | undefined): Wire | undefined {
  if (!lifetimes) return undefined;
  const text = (ms: number | undefined) => (ms === undefined ? undefined : String(ms));
  const { idleMs, absoluteMs, graceMs } = lifetimes;
  return present({ idle_ms: text(idleMs), absolute_ms: text(absoluteMs), grace_ms: text(graceMs) });
}

export function toStatus(status: SessionStatus | undefined): Wire | undefined {
  if (!status || !('parts' in status)) return status;
  const parts = status.parts?.map(({ part, is, sinceMs, code, message }) =>
    present({ part, is, since_ms: sinceMs === undefined ? undefined : String(sinceMs), code, message }),
  );
  return present({ is: status.is, parts });
}

function fromStatus(status: Wire): SessionStatus {
  const { is, parts } = status;
  if (is !== 'failed' && !parts) return { is };
  const read = (parts as Wire[]).map(({ part, is, since_ms, code, message }) => ({
    part,
    is,
    ...(since_ms === undefined ? {} : { sinceMs: Number(since_ms) }),
    ...(code === undefined ? {} : { code }),
    ...(message === undefined ? {} : { message }),
  }));
  return { is, parts: read };
}

export function fromView(view: Wire): SessionView {
  return {
    id: view['session'],
    ...(view['service'] === undefined ? {} : { service: view['service'] }),
    ...(view['label'] === undefined ? {} : { label: view['label'] }),
    status: fromStatus(view['status']),
    ...(view['metadata'] == null ? {} : { metadata: JSON.parse(view['metadata']) as Json }),
    bound: view['bound'],
    createdMs: Number(view['created_ms']),
    activeMs: Number(view['active_ms']),
    ...(view['expires_ms'] == null ? {} : { expiresMs: Number(view['expires_ms']) }),
    attached: view['attached'],
    lastNumber: BigInt(view['last_number']),
    stateKeys: view['state_keys'],
    stateBytes: BigInt(view['state_bytes']),
    streams: view['streams'],
    events: view['events'],
    eventBytes: BigInt(view['event_bytes']),
  };
}

export function fromStream(view: Wire): StreamView {
  return {
    id: view['stream'],
    ...(view['opened_by'] == null ? {} : { openedBy: JSON.parse(view['opened_by']) as Json }),
    closed: view['closed'],
    orphaned: view['orphaned'],
    lastPosition: BigInt(view['last_position']),
    ...(view['cursor'] == null ? {} : { cursor: view['cursor'] }),
    events: view['events'],
    bytes: BigInt(view['bytes']),
  };
}

export function fromAppended({ id, stream, position, number }: Wire): Appended {
  return { id, stream, position: BigInt(position), number: BigInt(number) };
}

export function fromFound({ stream, position, number, ended }: Wire): FoundEvent {
  return { stream: fromStream(stream), position: BigInt(position), number: BigInt(number), ended };
}

export function toCursor(cursor: Cursor): Wire {
  return 'number' in cursor ? { number: String(cursor.number) } : cursor;
}

function fromCursor(cursor: Wire): Cursor {
  return 'number' in cursor ? { number: BigInt(cursor['number']) } : (cursor as Cursor);
}

export function fromReplayed(page: Wire): Replayed {
  return {
    events: (page['events'] as Wire[]).map((event) => ({ ...fromAppended(event), json: event['message'] })),
    gaps: (page['gaps'] as Wire[]).map(({ stream, first, last }) => ({
      ...(stream == null ? {} : { stream }),
      first: BigInt(first),
      last: BigInt(last),
    })),
    next: (page['next'] as Wire[]).map(fromCursor),
    more: page['more'],
    ended: page['ended'] ?? [],
  };
}
