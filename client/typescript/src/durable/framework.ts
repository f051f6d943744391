// Frameworks that send their responses themselves, with the headers that their own middleware and hooks have for them.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Readable, Writable } from 'node:stream';

/** A response as a handler of Node's `http` has written it, for a framework to send. */
export interface Written {
  status: number;
  headers: [name: string, value: string][];
  /** Comes as it is written. Absent where the response has none. */
  body: Readable | undefined;
}

/** What is about the connection is the framework's. */
const OF_CONNECTION = ['connection', 'date', 'keep-alive', 'transfer-encoding'];
/** Responses of these have no body (the Fetch standard, 2.2.3). */
const NO_BODY = [101, 103, 204, 205, 304];
const HEAD_END = '\r\n\r\n';

/** The head of what `handle` writes, as soon as it has written it. */
export function written(
  request: IncomingMessage,
  handle: (response: ServerResponse) => Promise<void>,
): Promise<Written> {
  // Not of the framework's request: Bun would write to its connection.
  const asked = new IncomingMessage(new Socket());
  Object.assign(asked, { method: request.method, httpVersionMajor: 1, httpVersionMinor: 1 });
  const response = new ServerResponse(asked);
  // The body is framed by the framework.
  response.useChunkedEncodingByDefault = false;
  /** The framework wants more. */
  let resume: (() => void) | undefined;
  const body = new Readable({
    read: () => {
      const done = resume;
      resume = undefined;
      done?.();
    },
    // The client is gone.
    destroy: (error, done) => {
      socket.destroy();
      done(error);
    },
  });
  let socket!: Writable;
  return new Promise((resolve, reject) => {
    let head: Buffer | undefined = Buffer.alloc(0);
    socket = new Writable({
      write: (bytes: Buffer, _encoding, done) => {
        let rest = bytes;
        if (head) {
          head = Buffer.concat([head, bytes]);
          const end = head.indexOf(HEAD_END);
          if (end < 0) return done();
          rest = head.subarray(end + HEAD_END.length);
          const lines = head.subarray(0, end).toString('latin1').split('\r\n');
          head = undefined;
          const status = response.statusCode;
          const isBare = NO_BODY.includes(status);
          // What ends with its head has no body, which is known when `end` has returned. A response to HEAD has that of the GET.
          queueMicrotask(() => {
            const isEmpty = request.method !== 'HEAD' && response.writableEnded && body.readableLength === 0;
            resolve({ status, headers: headersOf(lines), body: isBare || isEmpty ? undefined : body });
          });
        }
        if (rest.length === 0 || body.push(rest)) return done();
        resume = done;
      },
    });
    socket.on('drain', () => response.emit('drain'));
    response.assignSocket(socket as never);
    response.once('finish', () => {
      body.push(null);
      socket.destroy();
    });
    handle(response).catch(reject);
  });
}

/** The headers in the lines of a head, the first of which is the status. */
function headersOf([, ...lines]: string[]): Written['headers'] {
  const headers = lines.map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as [string, string];
  });
  return headers.filter(([name]) => !OF_CONNECTION.includes(name));
}

/** What is used of a reply of Fastify's. */
export interface FastifyReply {
  raw: ServerResponse;
  header(name: string, value: string): unknown;
  code(status: number): unknown;
  send(body?: unknown): unknown;
}

/** What is used of a context of Hono's. */
export interface HonoContext {
  env: unknown;
  header(name: string, value: string, options?: { append?: boolean }): void;
  body(body: ReadableStream | null, status: number): Response;
}

/** Has Fastify send a response. */
export function sendByFastify({ status, headers, body }: Written, reply: FastifyReply): void {
  // `Set-Cookie` is added to those that the app sets.
  for (const [name, value] of headers) reply.header(name, value);
  reply.code(status);
  // A client that waits for the head need not wait for the first event.
  reply.raw.once('pipe', () => reply.raw.flushHeaders());
  reply.send(body);
}

/** Has Hono send a response. */
export function sendByHono({ status, headers, body }: Written, context: HonoContext): Response {
  for (const [name, value] of headers) context.header(name, value, { append: name === 'set-cookie' });
  return context.body(body ? webStream(body) : null, status);
}

/**
 * The stream of Web standards for a body. `Readable.toWeb` of Node 20 ends the process where the client is gone while bytes
 * come.
 */
function webStream(body: Readable): ReadableStream {
  const parts = body[Symbol.asyncIterator]();
  const pull = async (controller: ReadableStreamDefaultController) => {
    const { done, value } = await parts.next();
    if (done) controller.close();
    else controller.enqueue(value);
  };
  return new ReadableStream({ pull, cancel: () => void body.destroy() }, { highWaterMark: 0 });
}
