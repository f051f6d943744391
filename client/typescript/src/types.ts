// What calls about sessions take and give. Counts and versions are bigint: they are 64-bit numbers on the
// wire, where a `number` would be wrong beyond 2^53 and text would compare wrongly ("10" < "9"). Times are
// `number`, in ms: those of `Date`.

/** Anything that JSON has. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json | undefined };

/**
 * Who is asking, where a session is bound: an identity of a token's claims (RFC 9068), or the hash of a
 * credential.
 */
export type Caller =
  | { kind: 'identity'; iss: string; sub: string }
  | { kind: 'credential'; /** SHA-256 of the credential, 64 hexadecimal digits. */ hash: string };

/** To whom a session is bound. */
export interface Binding {
  caller: Caller;
}

/** How far a session has come. */
export type SessionStatus =
  | { is: 'initializing' | 'terminated' }
  | { is: 'ready'; parts?: SessionPart[] }
  | { is: 'failed'; parts: SessionPart[] };

/**
 * A part of a session, such as one of several backends. `code` and `message` say why one has failed: the first
 * in a word, the second for people. `sinceMs`, in ms since the Unix epoch: since when it is so; of one that is
 * ready, when it was initialised.
 */
export interface SessionPart {
  part: string;
  is: 'initializing' | 'ready' | 'failed' | 'not_tried';
  sinceMs?: number;
  code?: string;
  message?: string;
}

/**
 * How long a session lives, in ms: after its last use, after it was made, after its last client has gone. 0:
 * without an end.
 */
export interface Lifetimes {
  idleMs?: number;
  absoluteMs?: number;
  graceMs?: number;
}

/**
 * What a new session is made with. Without anything it is `initializing`, bound to nobody, and lives as
 * configured.
 */
export interface CreateOptions {
  /** Its id, 1 to 128 visible ASCII characters. By default a new one. */
  id?: string;
  binding?: Binding;
  lifetimes?: Lifetimes;
  status?: SessionStatus;
  /** What the handshake said: JSON of at most 64 KiB. */
  metadata?: Json;
}

/** What is to be different about a session. What is absent stays. */
export interface Update {
  status?: SessionStatus;
  metadata?: Json;
  lifetimes?: Lifetimes;
}

/** A session as it is now. */
export interface SessionView {
  id: string;
  /** Absent where a host owns it. */
  service?: string;
  /** The label, or the name, that it was claimed with. */
  label?: string;
  status: SessionStatus;
  /** Absent in lists. */
  metadata?: Json;
  /** Whether it is bound to a caller. */
  bound: boolean;
  /** In ms since the Unix epoch, as are `activeMs` and `expiresMs`. */
  createdMs: number;
  activeMs: number;
  /** When it ends if nothing happens. Absent: it does not by itself. */
  expiresMs?: number;
  /** Clients that are attached through this daemon. */
  attached: number;
  /** The number of its last event; 0: there was none. */
  lastNumber: bigint;
  stateKeys: number;
  stateBytes: bigint;
  streams: number;
  /** Events that can be replayed, priming events among them. */
  events: number;
  eventBytes: bigint;
}

/** A key of a session's state. `version` 0: there is no value. */
export interface StateEntry<T = Json> {
  key: string;
  version: bigint;
  value?: T;
}

/** A key that has a value, and the value's bytes. */
export interface StateKeyInfo {
  key: string;
  version: bigint;
  bytes: number;
  /** When the value goes by itself, in ms since the Unix epoch. Absent: it does not. */
  expiresMs?: number;
}

/**
 * One write. Without `value` the key goes. With `expected` only if the key is at this version; 0: only if it
 * has no value.
 */
export interface StateWrite {
  key: string;
  value?: unknown;
  expected?: bigint;
  /** After how many ms, at least 1, the value goes by itself. Absent: it stays. */
  expiresMs?: number;
}

/**
 * A secret of a service: 256 random bits each. What is made now is made with `current`; what was made with
 * one of `former` still counts.
 */
export interface Secret {
  current: Uint8Array;
  former: Uint8Array[];
}

/** What has become of a task. The last three are final. */
export type TaskStatus = 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled';

/** How a task begins. */
export interface TaskOptions {
  /** How long after its creation it is kept, in ms: at most, and by default, what is configured. */
  ttlMs?: number;
  /** How often clients should ask for it, in ms. */
  pollMs?: number;
  /** What people are told of its state, at most 4,096 bytes. */
  message?: string;
  /** An idempotency key: repeating a call with it gives the same task. By default a new one. */
  request?: string;
}

/** What is to be different about a task. What is absent stays. */
export interface TaskChange {
  message?: string;
  ttlMs?: number;
  pollMs?: number;
  /** Requests for the client, by keys that the task has not used for another request. */
  ask?: Record<string, unknown>;
  /** The client's answers. The daemon ignores those to what was not asked, or is answered already. */
  answer?: Record<string, unknown>;
  /** This process writes the task from now on: its exit is the end of the task. */
  take?: boolean;
}

/** A request of a task for its client. Without `response` it is open. */
export interface TaskInput {
  key: string;
  request: Json;
  response?: Json;
}

/** A task as it is now. */
export interface TaskView {
  id: string;
  status: TaskStatus;
  message?: string;
  /** In ms since the Unix epoch, as is `updatedMs`. */
  createdMs: number;
  updatedMs: number;
  /** How long after its creation it is kept. */
  ttlMs: number;
  pollMs?: number;
  /** Grows with each change, from 1. */
  version: bigint;
  /** Empty in lists, and where the task has ended. */
  inputs: TaskInput[];
  /** Of one that is `completed`; not in lists. */
  result?: Json;
  /** Of one that has `failed`; not in lists. */
  error?: Json;
}

/** A stream as it is now. */
export interface StreamView {
  id: string;
  /** The id of the request that opened it. */
  openedBy?: Json;
  /** Nothing more can be appended; what it has said can be replayed. */
  closed: boolean;
  /** Its reader is gone. */
  orphaned: boolean;
  /** Of its last event; 0: there was none. */
  lastPosition: bigint;
  /** The id of its last event. */
  cursor?: string;
  events: number;
  bytes: bigint;
}

/** Where an appended message is. */
export interface Appended {
  /** For `Last-Event-ID`: opaque, good in its session only. */
  id: string;
  stream: string;
  /** In its stream, from 1 and without gaps. */
  position: bigint;
  /** In its session, from 1 and without gaps. */
  number: bigint;
}

/** A message of a stream. */
export interface StreamEvent extends Appended {
  /** The message, as the text that was appended. */
  json: string;
}

/** A place: after an event, at the beginning of a stream, or after a number of the session. */
export type Cursor = { event: string } | { stream: string } | { number: bigint };

/**
 * Events that were deleted before anybody fetched them: positions in a stream, or numbers of the session.
 * Both ends are missing.
 */
export interface Gap {
  stream?: string;
  first: bigint;
  last: bigint;
}

/** A part of what was said. */
export interface Replayed {
  events: StreamEvent[];
  gaps: Gap[];
  /** Where to go on. */
  next: Cursor[];
  /** Whether there is more already. */
  more: boolean;
  /** The cursors' streams that are closed and said to their ends. */
  ended: string[];
}

/** The stream of an event id. `ended`: the stream is closed, and this was its last event. */
export interface FoundEvent {
  stream: StreamView;
  position: bigint;
  number: bigint;
  ended: boolean;
}

/** A handle, told this once, and until when it is good, in ms since the Unix epoch. */
export interface Minted {
  handle: string;
  expiresMs: number;
}
