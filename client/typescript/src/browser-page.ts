// A page's transport: what it notes for the next page, and what it resumes of the former one.

/** What is used of `StreamableHTTPClientTransport`. */
export interface PageTransport {
  sessionId?: string | undefined;
  onmessage?: any;
  send(message: any, options?: any): Promise<void>;
  setProtocolVersion?(version: string): void;
  resumeStream(lastEventId: string, options?: { onresumptiontoken?: (token: string) => void }): Promise<void>;
  terminateSession(): Promise<void>;
}

/** A call of the former page that was not answered. */
export interface ResumedCall {
  method: string;
  /** Of the tool or the prompt, or the resource's URI. */
  name: string | undefined;
  /** What the server answers; rejects with its JSON-RPC error. There is no time limit. */
  result: Promise<any>;
  /** Called with the parameters of each progress notification. Set it at once. */
  onprogress?: (progress: any) => void;
}

/** A page's `fetch`. */
export type Fetch = (url: any, init?: any) => Promise<Response>;

/** Where it is kept what the next page needs. */
export type PageStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

interface Open {
  method: string;
  name?: string | undefined;
  token: string;
}
interface Kept {
  session: string;
  version: string | undefined;
  open: Record<string, Open>;
  /** The last event of the standalone stream that a page got. */
  standalone?: string | undefined;
}
type Message = { id?: any; method?: string; params?: any; result?: unknown; error?: unknown };
type Waiting = { call: ResumedCall; settle: (message: Message) => void };

const textOr = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);

/** The entry of a storage. One that this library did not write counts as none: the page connects in full. */
function read(text: string | null): Kept | undefined {
  try {
    const { session, version, open, standalone } = JSON.parse(text ?? '{}') as Partial<Kept>;
    if (typeof session !== 'string' || typeof open !== 'object' || open === null) return undefined;
    return { session, version: textOr(version), open, standalone: textOr(standalone) };
  } catch {
    return undefined;
  }
}

/** What the next page needs. */
export class Memory {
  kept: Kept | undefined;

  constructor(
    readonly storage: PageStorage,
    readonly key: string,
  ) {
    this.kept = read(storage.getItem(key));
  }

  begin(session: string, version: string | undefined): void {
    this.kept = { session, version, open: {} };
    this.save();
  }

  save(): void {
    if (this.kept) this.storage.setItem(this.key, JSON.stringify(this.kept));
  }

  forget(): void {
    this.kept = undefined;
    this.storage.removeItem(this.key);
  }
}

/**
 * What a page's transport asks the server, with `given` or the browser's own `fetch`.
 *
 * The SDK opens the standalone stream where `notifications/initialized` was answered by 202, and keeps no event ids of it.
 * The page opens that stream itself, so the SDK gets another status of the same meaning.
 */
export class Requests {
  /** Whether the server has taken `notifications/initialized`. */
  isInitialized = false;
  /** The status of the last GET. 405: the server has no standalone stream. */
  lastGet: number | undefined;

  constructor(readonly given: Fetch | undefined) {}

  readonly fetch: Fetch = async (url, init) => {
    const response = await (this.given ? this.given(url, init) : fetch(url, init));
    if (init?.method === 'GET') this.lastGet = response.status;
    if (init?.method !== 'POST' || !isInitialized(init.body)) return response;
    this.isInitialized = response.ok;
    if (response.status !== 202) return response;
    await response.body?.cancel();
    return new Response(null, { status: 204, headers: response.headers });
  };
}

function isInitialized(body: unknown): boolean {
  if (typeof body !== 'string' || !body.includes('notifications/initialized')) return false;
  return (JSON.parse(body) as Message).method === 'notifications/initialized';
}

/** A page's transport. The ids of its calls are not those of the former page's, which may be open still. */
export class Page {
  version: string | undefined;
  readonly #prefix = `${crypto.getRandomValues(new Uint32Array(2)).join('')}-`;
  readonly #resumed = new Map<string, Waiting>();
  #listening = false;

  constructor(
    readonly transport: PageTransport,
    readonly memory: Memory,
    readonly retryMs: number,
  ) {
    const { setProtocolVersion } = transport;
    transport.setProtocolVersion = (version) => {
      this.version = version;
      setProtocolVersion?.call(transport, version);
    };
    const send = transport.send.bind(transport);
    transport.send = (message: Message, options) =>
      this.#listening ? this.#send(message, options, send) : send(message, options);
  }

  /** From now on ids are renamed. To be called once the client has connected. */
  listen(): void {
    const heard = this.transport.onmessage;
    this.transport.onmessage = (message: Message, extra?: unknown) =>
      this.#hear(message, (own) => heard?.(own, extra));
    this.#listening = true;
  }

  /**
   * Opens the standalone stream, behind the last event that a page got of it. Each event's id is kept in the task in which
   * its message is handed over, so that no reload comes in between. Rejects where the server refuses it.
   */
  async openStandalone(): Promise<void> {
    const onresumptiontoken = (token: string) => {
      if (!this.memory.kept) return;
      this.memory.kept.standalone = token;
      this.memory.save();
    };
    const token = this.memory.kept?.standalone;
    // Without an id the server begins with what it has not sent yet.
    if (token === undefined) return this.transport.resumeStream('', { onresumptiontoken });
    try {
      await this.transport.resumeStream(token, { onresumptiontoken });
    } catch (error) {
      if (statusOf(error) !== 400) throw error;
      await this.transport.resumeStream('', { onresumptiontoken });
    }
  }

  /** The same, until it is open. Where the server refuses it for good, the SDK's `onerror` has heard of it. */
  async keepOpeningStandalone(): Promise<void> {
    for (;;) {
      try {
        return await this.openStandalone();
      } catch (error) {
        // `close` of the client aborts for good.
        if ((isRefusal(error) && !isTaken(error)) || isAbort(error)) return;
      }
      await new Promise((resolve) => void setTimeout(resolve, this.retryMs));
    }
  }

  /** Asks for the rest of the former page's calls. */
  resume(): ResumedCall[] {
    return Object.entries(this.memory.kept?.open ?? {}).map(([id, { method, name, token }]) => {
      let settle = (_: Message): void => undefined;
      const result = new Promise<unknown>((resolve, reject) => {
        settle = ({ result, error }) => (error === undefined ? resolve(result) : reject(error));
      });
      const call: ResumedCall = { method, name, result };
      this.#resumed.set(id, { call, settle });
      void this.#fetchRest(id, token, this.#noting(id, method, name));
      return call;
    });
  }

  /** Opens a stream again. Once it is open, the SDK comes back by itself. */
  async #fetchRest(id: string, token: string, onresumptiontoken: (token: string) => void): Promise<void> {
    for (;;) {
      try {
        return await this.transport.resumeStream(token, { onresumptiontoken });
      } catch (error) {
        if (isRefusal(error)) {
          this.#answered({ id, error });
          return;
        }
      }
      await new Promise((resolve) => void setTimeout(resolve, this.retryMs));
    }
  }

  #send(message: Message, options: any, send: PageTransport['send']): Promise<void> {
    const { id, method, params } = message;
    if (method === 'notifications/cancelled') {
      const requestId = this.#prefix + params.requestId;
      this.#close(requestId);
      return send({ ...message, params: { ...params, requestId } }, options);
    }
    if (method === undefined || id === undefined) return send(message, options);
    const own = this.#prefix + id;
    const note = this.#noting(own, method, params?.name ?? params?.uri);
    const onresumptiontoken = (token: string) => {
      note(token);
      options?.onresumptiontoken?.(token);
    };
    const meta =
      params?._meta?.progressToken === undefined
        ? {}
        : {
            params: {
              ...params,
              _meta: { ...params._meta, progressToken: this.#prefix + params._meta.progressToken },
            },
          };
    return send({ ...message, ...meta, id: own }, { ...options, onresumptiontoken });
  }

  /** Takes down how far a call has come. */
  #noting(id: string, method: string, name: string | undefined): (token: string) => void {
    return (token) => {
      if (!this.memory.kept) return;
      this.memory.kept.open[id] = { method, name, token };
      this.memory.save();
    };
  }

  #hear(message: Message, pass: (message: Message) => void): void {
    const { id, method, params } = message;
    if (method === 'notifications/progress') {
      // The SDK's client takes the id of a call as its progress token.
      const former = this.#resumed.get(params.progressToken);
      if (former) former.call.onprogress?.(params);
      else pass({ ...message, params: { ...params, progressToken: this.#own(params.progressToken) } });
    } else if (method !== undefined) {
      pass(message);
    } else if (!this.#answered(message)) {
      this.#close(id);
      pass({ ...message, id: this.#own(id) });
    }
  }

  /** Whether a message answers a call of the former page. */
  #answered(message: Message): boolean {
    const waiting = this.#resumed.get(message.id);
    if (!waiting) return false;
    this.#resumed.delete(message.id);
    this.#close(message.id);
    waiting.settle(message);
    return true;
  }

  #close(id: string): void {
    if (!this.memory.kept || !(id in this.memory.kept.open)) return;
    delete this.memory.kept.open[id];
    this.memory.save();
  }

  /** The client's own id or token, which is a number. */
  #own(id: unknown): unknown {
    return typeof id === 'string' && id.startsWith(this.#prefix) ? Number(id.slice(this.#prefix.length)) : id;
  }
}

/** The status with which the server has refused, where it has. */
function statusOf(error: unknown): number | undefined {
  // v1 has it as the code, v2 beside it.
  const { code, data } = error as { code?: unknown; data?: { status?: unknown } };
  return [code, data?.status].find((status) => typeof status === 'number' && status >= 400) as
    | number
    | undefined;
}

/** Whether the server does not know the session any more. */
export function isGone(error: unknown): boolean {
  return statusOf(error) === 404;
}

/** Whether the server takes the stream for read: the connection of the page that was reloaded is not over for it. */
export function isTaken(error: unknown): boolean {
  return statusOf(error) === 409;
}

/** Whether nothing is asked any more: the client was closed. */
function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError';
}

/** Whether the server has refused for good. */
function isRefusal(error: unknown): boolean {
  const status = statusOf(error);
  return status !== undefined && status >= 400 && status < 500;
}
