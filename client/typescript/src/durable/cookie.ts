// A cookie that names the session, for pages: the browser keeps it, and scripts can't read it.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { SessiondError } from '../errors.js';
import type { HttpRequest } from './request.js';

/** How the cookie of a session is set: `HttpOnly`, until the browser is closed. */
export interface SessionCookie {
  name: string;
  /** For which path, and those below it: `/`. */
  path?: string;
  /** Whether browsers send it over TLS alone: false. With `sameSite: 'None'` the cookie is always `Secure`. */
  secure?: boolean;
  /** From which pages browsers send it: `Strict`, those of the same site alone (RFC 6265bis, 4.1.2.7). */
  sameSite?: 'Strict' | 'Lax' | 'None';
}

/** The header that names a session (MCP 2025-11-25, Session Management). */
const HEADER = 'mcp-session-id';
/**
 * Cookies of the name that are looked at. Another server on the same host can set one, too, and the browser does
 * not tell whose each is.
 */
const COOKIES_MAX = 4;
/** What a cookie's name may have (RFC 6265, section 4.1.1). */
const NAME = /^[!#$%&'*+.^_`|~\w-]+$/;
const PATH = /^\/[!-:<-~]*$/;

/** The cookie of the sessions of one `durable`. */
export class Cookie {
  readonly #name: string;
  readonly #attributes: string;

  /** Throws `invalid_argument`. */
  constructor(given: string | SessionCookie) {
    const cookie = typeof given === 'string' ? { name: given } : given;
    const { name, path = '/', secure = false, sameSite = 'Strict' } = cookie;
    if (!NAME.test(name)) throw invalid("`cookie` needs a name of letters, digits and !#$%&'*+-.^_`|~");
    if (!PATH.test(path)) throw invalid('the `path` of `cookie` begins with / and has visible ASCII but `;`');
    if (!['Strict', 'Lax', 'None'].includes(sameSite))
      throw invalid('`sameSite` of `cookie` is Strict, Lax or None');
    this.#name = name;
    const isSecure = secure || sameSite === 'None' ? '; Secure' : '';
    this.#attributes = `; Path=${path}; HttpOnly; SameSite=${sameSite}${isSecure}`;
  }

  /** The ids that the cookies of a request name. */
  idsOf({ headers }: IncomingMessage): string[] {
    const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim());
    const own = pairs.filter((pair) => pair.startsWith(`${this.#name}=`));
    return own.slice(0, COOKIES_MAX).map((pair) => pair.slice(this.#name.length + 1));
  }

  /** A response to the first request of a session, which sets the cookie unless that is refused. */
  set(response: ServerResponse, id: string): void {
    beforeHead(response, (status, headers) => {
      if (status < 400) response.appendHeader('Set-Cookie', `${this.#name}=${id}${this.#attributes}`);
      return headers;
    });
  }
}

/**
 * A request whose session a cookie alone has named. The SDK takes the id from the header. The response does not
 * have it there: scripts of a page can read a header, and not the cookie.
 */
export function useCookieId(request: HttpRequest, response: ServerResponse, id: string): void {
  request.headers[HEADER] = id;
  request.rawHeaders.push(HEADER, id);
  beforeHead(response, (_, headers) => {
    response.removeHeader(HEADER);
    return Object.fromEntries(Object.entries(headers).filter(([name]) => name.toLowerCase() !== HEADER));
  });
}

type Headers = Record<string, any>;

/** Calls `change` before the status and the headers of a response are sent, with those that are sent last. */
function beforeHead(response: ServerResponse, change: (status: number, headers: Headers) => Headers): void {
  const writeHead = response.writeHead.bind(response) as (...given: unknown[]) => ServerResponse;
  response.writeHead = (status: number, ...given: any[]) => {
    const message = typeof given[0] === 'string' ? [given[0]] : [];
    // `writeHead(200, undefined, headers)` leaves the message out, too.
    const headers = given[message.length] ?? given[1] ?? {};
    return writeHead(status, ...message, change(status, Array.isArray(headers) ? listed(headers) : headers));
  };
}

/** Headers that are an array: of pairs, or of names and values in turn. */
function listed(headers: any[]): Headers {
  const pairs = Array.isArray(headers[0])
    ? headers
    : Array.from({ length: headers.length / 2 }, (_, at) => headers.slice(2 * at, 2 * at + 2));
  const all: Headers = {};
  for (const [name, value] of pairs) all[name] = name in all ? [all[name], value].flat() : value;
  return all;
}

function invalid(sentence: string): SessiondError {
  return new SessiondError('invalid_argument', sentence);
}
