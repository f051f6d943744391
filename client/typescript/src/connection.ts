// One connection to the daemon: frames of JSON-RPC, with as many requests under way as there are.
import { createConnection, type Socket } from 'node:net';
import { checkDirectory, NotRunning, socketOf } from './directory.js';
import { refusal, SessiondError } from './errors.js';
import {
  CHALLENGE_BYTES,
  FRAME_MAX,
  hello,
  HELLO_BYTES,
  HelloRefused,
  isChallenge,
  readHello,
  type Hello,
} from './hello.js';

/** The connection has ended. Whether the call was carried out is not known. */
export class Disconnected extends Error {}

/** The caller does not wait for the answer any more. */
export class Cancelled extends Error {}

/** How long a daemon works on a call, in ms. */
const RETIRED_MS = 30_000;

interface Waiting {
  resolve: (result: unknown) => void;
  reject: (error: Error) => void;
}

/** A connection that has said hello. Requests may be sent without waiting for the answers of others. */
export class Connection {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, Waiting>();
  #next = 1;
  #unread: Buffer[] = [];
  #unreadBytes = 0;
  /** What the daemon has said of itself. */
  readonly hello: Hello;
  /** Resolves when it has ended. */
  readonly ended: Promise<void>;
  #isEnded = false;

  private constructor(socket: Socket, hello: Hello, rest: Buffer) {
    this.#socket = socket;
    this.hello = hello;
    this.ended = new Promise((resolve) => {
      socket.once('close', () => {
        this.#end();
        resolve();
      });
    });
    socket.on('error', () => this.#end());
    socket.on('data', (bytes) => this.#read(bytes));
    if (rest.length > 0) this.#read(rest);
    // Who waits for nothing is not kept from exiting.
    socket.unref();
  }

  /**
   * Connects to the daemon of a directory that is ours. Rejects with a {@link SessiondError}, or what the
   * system says.
   */
  static async open(directory: string): Promise<Connection> {
    checkDirectory(directory);
    const path = socketOf(directory);
    const socket = createConnection({ path });
    try {
      const { answer, rest } = await greet(socket, path);
      return new Connection(socket, answer, rest);
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  /** Whether it has ended, as far as is known. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /**
   * Calls a method. Rejects with a {@link SessiondError} where the daemon refuses, and with {@link
   * Disconnected} where the connection ends before the answer. Once `signal` is aborted, the call is
   * cancelled: {@link Cancelled}.
   */
  call(method: string, params: object, signal?: AbortSignal): Promise<unknown> {
    const id = this.#next++;
    const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    if (signal?.aborted) return Promise.reject(new Cancelled());
    const most = Math.min(FRAME_MAX, this.hello.frameMax);
    if (body.length > most) {
      const sentence = `the request has ${body.length} bytes; a frame has ${most} at most`;
      return Promise.reject(new SessiondError('invalid_argument', sentence));
    }
    if (this.#isEnded) return Promise.reject(new Disconnected());
    const cancel = () => this.#cancel(id);
    const answer = new Promise((resolve, reject) => {
      if (this.#waiting.size === 0) this.#socket.ref();
      this.#waiting.set(id, { resolve, reject });
      this.#write(body);
      signal?.addEventListener('abort', cancel, { once: true });
    });
    return signal ? answer.finally(() => signal.removeEventListener('abort', cancel)) : answer;
  }

  /** Sends nothing more. Calls that are under way go on for as long as a daemon works on one. */
  retire(): void {
    this.#socket.unref();
    setTimeout(() => this.close(), RETIRED_MS).unref();
  }

  /** Ends the connection. */
  close(): void {
    this.#socket.destroy();
    this.#end();
  }

  #write(body: Buffer): void {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(body.length);
    this.#socket.cork();
    this.#socket.write(length);
    this.#socket.write(body);
    this.#socket.uncork();
  }

  #cancel(id: number): void {
    const waiting = this.#settled(id);
    if (!waiting) return;
    const params = { requestId: id };
    this.#write(Buffer.from(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params })));
    waiting.reject(new Cancelled());
  }

  /** Who waits for the answer of this id, no longer. */
  #settled(id: number): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    if (this.#waiting.delete(id) && this.#waiting.size === 0) this.#socket.unref();
    return waiting;
  }

  #end(): void {
    this.#isEnded = true;
    for (const { reject } of this.#waiting.values()) reject(new Disconnected());
    this.#waiting.clear();
  }

  #read(bytes: Buffer): void {
    this.#unread.push(bytes);
    this.#unreadBytes += bytes.length;
    // What has come of a large frame is not copied at each piece.
    while (this.#unreadBytes >= 4) {
      const first = this.#unread[0]!;
      const head = first.length >= 4 ? first : this.#joined();
      const length = head.readUInt32BE(0);
      if (length > FRAME_MAX) return this.close();
      if (this.#unreadBytes < 4 + length) return;
      const whole = this.#joined();
      this.#unread = whole.length > 4 + length ? [whole.subarray(4 + length)] : [];
      this.#unreadBytes -= 4 + length;
      this.#answered(whole.subarray(4, 4 + length));
    }
  }

  #joined(): Buffer {
    const whole = this.#unread.length === 1 ? this.#unread[0]! : Buffer.concat(this.#unread);
    this.#unread = [whole];
    return whole;
  }

  #answered(frame: Buffer): void {
    let answer: { id?: unknown; result?: unknown; error?: Parameters<typeof refusal>[0] };
    try {
      answer = JSON.parse(frame.toString('utf8')) as typeof answer;
    } catch {
      return this.close();
    }
    const waiting = this.#settled(answer.id as number);
    if (answer.error) waiting?.reject(refusal(answer.error));
    else waiting?.resolve(answer.result);
  }
}

/** Says hello, and reads the daemon's. */
function greet(socket: Socket, path: string): Promise<{ answer: Hello; rest: Buffer }> {
  return new Promise((resolve, reject) => {
    let read = Buffer.alloc(0);
    let isChallenged = false;
    const settle = (how: () => void) => {
      socket.off('data', onData).off('error', onError).off('close', onClose);
      how();
    };
    const onData = (bytes: Buffer) => {
      read = Buffer.concat([read, bytes]);
      if (read.length < HELLO_BYTES) return;
      if (!isChallenged && isChallenge(read)) {
        const end = HELLO_BYTES + CHALLENGE_BYTES;
        if (read.length < end) return;
        isChallenged = true;
        socket.write(read.subarray(HELLO_BYTES, end));
        read = read.subarray(end);
        return;
      }
      settle(() => {
        try {
          resolve({ answer: readHello(read.subarray(0, HELLO_BYTES)), rest: read.subarray(HELLO_BYTES) });
        } catch (error) {
          reject(error as Error);
        }
      });
    };
    const onError = (error: NodeJS.ErrnoException) =>
      settle(() => {
        // Refused: the daemon is gone, or between taking the path and listening.
        reject(error.code === 'ENOENT' || error.code === 'ECONNREFUSED' ? new NotRunning(path) : error);
      });
    // With very many to turn away the daemon closes connections without an answer.
    const onClose = () =>
      settle(() => reject(new HelloRefused(true, 'the daemon has too many connections, or is exiting')));
    socket.on('data', onData).on('error', onError).on('close', onClose);
    socket.write(hello());
  });
}
