// A web page that is reloaded in the middle of a call: around the transport of the official client, v1 from
// 1.24 on or v2. It needs nothing but a browser.
import {
  isGone,
  isTaken,
  Memory,
  Page,
  Requests,
  type Fetch,
  type PageStorage,
  type PageTransport,
  type ResumedCall,
} from './browser-page.js';

export type { PageStorage, PageTransport, ResumedCall };

/** What is used of the SDK's `Client`. */
export interface PageClient {
  connect(transport: any, options?: any): Promise<void>;
  close(): Promise<void>;
  ping(): Promise<unknown>;
}

/** How a page comes back. */
export interface PageOptions {
  /** Where it is kept what the next page needs: `sessionStorage`, which belongs to one tab. */
  storage?: PageStorage;
  /** The entry of the storage: `mcp`. Pages with several servers need several. */
  key?: string;
  /** Options of the SDK's transport. */
  transport?: Record<string, unknown>;
}

/** Two attempts, which is the default, are less than it takes to start a server again. */
const RECONNECTION = {
  initialReconnectionDelay: 1_000,
  maxReconnectionDelay: 30_000,
  reconnectionDelayGrowFactor: 1.5,
  maxRetries: 100,
};

/**
 * Connects a client, with the session of the page that was here before, if there was one: without
 * a handshake, with the rest of the standalone stream, and with the calls that were not answered. With nothing kept, or
 * where the session has ended, it connects in full. Rejects as `client.connect` does.
 *
 * ```ts
 * const { calls } = await connectPage(client, StreamableHTTPClientTransport, new URL('/mcp', location.href));
 * for (const call of calls) call.result.then((result) => show(call.name, result));
 * ```
 */
export async function connectPage<T extends PageTransport>(
  client: PageClient,
  Transport: new (url: URL, options?: any) => T,
  url: URL,
  options: PageOptions = {},
): Promise<{ transport: T; resumed: boolean; calls: ResumedCall[] }> {
  const reconnection = {
    ...RECONNECTION,
    ...(options.transport?.['reconnectionOptions'] as object | undefined),
  };
  const retryMs = reconnection.initialReconnectionDelay;
  const memory = new Memory(options.storage ?? sessionStorage, options.key ?? 'mcp');
  const requests = new Requests(options.transport?.['fetch'] as Fetch | undefined);
  const make = (sessionId?: string) =>
    new Transport(url, {
      ...options.transport,
      fetch: requests.fetch,
      reconnectionOptions: reconnection,
      ...(sessionId ? { sessionId } : {}),
    });
  const { kept } = memory;
  if (kept) {
    const transport = make(kept.session);
    const page = new Page(transport, memory, retryMs);
    try {
      await client.connect(transport);
      if (kept.version !== undefined) transport.setProtocolVersion?.(kept.version);
      page.listen();
      await page.openStandalone().catch((error: unknown) => {
        if (!isTaken(error)) throw error;
        void page.keepOpeningStandalone();
      });
      // A server without that stream was not asked yet whether it knows the session.
      if (requests.lastGet === 405) await client.ping();
      return { transport, resumed: true, calls: page.resume() };
    } catch (error) {
      if (!isGone(error)) throw error;
      await client.close();
      memory.forget();
    }
  }
  const transport = make();
  const page = new Page(transport, memory, retryMs);
  await client.connect(transport);
  page.listen();
  if (transport.sessionId !== undefined) memory.begin(transport.sessionId, page.version);
  if (requests.isInitialized) void page.keepOpeningStandalone();
  return { transport, resumed: false, calls: [] };
}

/** Ends the session, and forgets it. */
export async function endPage(
  client: PageClient,
  transport: PageTransport,
  { storage = sessionStorage, key = 'mcp' }: PageOptions = {},
): Promise<void> {
  new Memory(storage, key).forget();
  await transport.terminateSession();
  await client.close();
}
