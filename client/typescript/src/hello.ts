// The 32 bytes that each side says first (proto/PROTOCOL.md, "Hello").
import { SessiondError } from './errors.js';

/** Bytes of a hello. */
export const HELLO_BYTES = 32;
/** Bytes behind a hello that asks who this process is; they are to be written back. */
export const CHALLENGE_BYTES = 16;
/** The largest frame that this client takes, in bytes. */
export const FRAME_MAX = 4 * 1024 * 1024;

const MAGIC = Buffer.from('mcpsessd', 'latin1');
const VERSION = 2;
const JSON_RPC = 2;

/** What the daemon says of itself. */
export interface Hello {
  /** The largest frame that it takes, in bytes. */
  frameMax: number;
}

/** What a client says. */
export function hello(): Buffer {
  const bytes = Buffer.alloc(HELLO_BYTES);
  MAGIC.copy(bytes);
  bytes.writeUInt16BE(VERSION, 8);
  bytes.writeUInt8(JSON_RPC, 12);
  bytes.writeUInt32BE(FRAME_MAX, 16);
  return bytes;
}

const CHALLENGE = 6;

const ANSWERS: Record<number, [passes: boolean, sentence: string]> = {
  2: [false, 'the daemon does not speak JSON-RPC'],
  3: [true, 'the daemon has too many connections'],
  4: [true, 'the daemon is about to exit'],
  5: [
    false,
    'the daemon cannot identify this process: it is in another pid namespace, another process has opened the connection, or the system refuses pidfd_open',
  ],
};

/** A refusal of the daemon's hello. */
export class HelloRefused extends SessiondError {
  /** Whether the next attempt may succeed. */
  readonly isTransient: boolean;

  constructor(isTransient: boolean, sentence: string) {
    super('not_connected', sentence);
    this.isTransient = isTransient;
  }
}

/** Whether the daemon asks first who this process is: the kernel does not tell it (Linux before 6.5). */
export function isChallenge(bytes: Buffer): boolean {
  return bytes.subarray(0, 8).equals(MAGIC) && bytes.readUInt8(13) === CHALLENGE;
}

/** Reads the daemon's answer. Throws {@link HelloRefused} unless it is a welcome. */
export function readHello(bytes: Buffer): Hello {
  if (!bytes.subarray(0, 8).equals(MAGIC)) {
    throw new HelloRefused(false, 'what listens at the socket is not mcp-sessiond');
  }
  const [version, answer] = [bytes.readUInt16BE(8), bytes.readUInt8(13)];
  if (answer === 1) {
    const older = version < VERSION ? 'the daemon' : 'this library';
    const spoken = `the daemon speaks version ${version} of the protocol, this library ${VERSION}`;
    throw new HelloRefused(false, `${spoken}; upgrade ${older}`);
  }
  if (answer !== 0) {
    const [isTransient, sentence] = ANSWERS[answer] ?? [
      false,
      `the daemon refused the connection (${answer})`,
    ];
    throw new HelloRefused(isTransient, sentence);
  }
  return { frameMax: bytes.readUInt32BE(16) };
}
