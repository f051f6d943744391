// What a server or a transport of the SDK is asked, of which no client knows.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { header, type HttpRequest } from './request.js';
import type { HttpTransport, Message } from './sdk.js';

/** The id of what is asked. */
export const ID = 'mcp-sessiond';

/** The headers of what is asked. */
export function headersFor(host = 'localhost'): Record<string, string> {
  return { host, accept: 'application/json, text/event-stream', 'content-type': 'application/json' };
}

/** An `initialize` with these parameters. */
export function initializeOf(params: unknown): Message {
  return { jsonrpc: '2.0', id: ID, method: 'initialize', params: params as Record<string, unknown> };
}

/**
 * Gives a message to a transport as a POST, and waits until that is answered. Returns the `Content-Type` of the response. Rejects
 * where it is refused. `by`: the request whose user it is for.
 */
export async function exchange(
  transport: HttpTransport,
  headers: Record<string, string>,
  body: Message,
  by?: HttpRequest & { auth?: unknown },
): Promise<string | undefined> {
  const request = new IncomingMessage(new Socket());
  const authorization = by && header(by, 'authorization');
  if (authorization !== undefined) headers = { ...headers, authorization };
  const rawHeaders = Object.entries(headers).flat();
  Object.assign(request, {
    method: 'POST',
    url: '/mcp',
    httpVersion: '1.1',
    headers,
    rawHeaders,
    complete: true,
    ...(by?.auth === undefined ? {} : { auth: by.auth }),
  });
  request.push(null);
  const response = new ServerResponse(request);
  let head = '';
  const nobody = new Writable({
    write: (bytes: Buffer, _encoding, done) => {
      // A head comes as a whole.
      head ||= bytes.toString('latin1');
      done();
    },
  });
  response.assignSocket(nobody as Socket);
  const answered = new Promise<void>((resolve) => response.once('finish', resolve).once('close', resolve));
  await transport.handleRequest(request, response, body);
  await answered;
  if (response.statusCode >= 400)
    throw new Error(`the SDK has refused \`${body.method}\` with HTTP ${response.statusCode}`);
  return /^content-type: *([^\r;]*)/im.exec(head)?.[1];
}
