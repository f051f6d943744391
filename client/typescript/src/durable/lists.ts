// The lists of the server that a client knows, as digests: what another version of the server lists otherwise, the client is
// told.
import { createHash } from 'node:crypto';
import type { Session } from '../session.js';
import type { Id } from './request-ids.js';
import type { Message } from './sdk.js';

/** The key of the state that has the digests, by the method that asks for the list. The Python library has the same. */
const STATE = 'mcp.lists';
/** How many pages of a list are read. */
const PAGES_MAX = 100;

/** By the method that asks for a list: its member of the result, and whose `list_changed` tells of it. */
const LISTS: Record<string, { items: string; of: string }> = {
  'tools/list': { items: 'tools', of: 'tools' },
  'prompts/list': { items: 'prompts', of: 'prompts' },
  'resources/list': { items: 'resources', of: 'resources' },
  'resources/templates/list': { items: 'resourceTemplates', of: 'resources' },
};

type Capabilities = Record<string, { listChanged?: unknown } | undefined>;

/**
 * The answer to `initialize` as the client gets it: each list of the server's may change, since another version of the server may
 * restore the session.
 */
export function withLists(answer: Message): Message {
  const result = answer.result as { capabilities?: Capabilities } | undefined;
  if (!result?.capabilities) return answer;
  const capabilities = { ...result.capabilities };
  for (const { of } of Object.values(LISTS))
    if (capabilities[of]) capabilities[of] = { ...capabilities[of], listChanged: true };
  return { ...answer, result: { ...result, capabilities } };
}

/** A page of a list. Undefined: the server has answered with an error. */
export type ListPage = (
  method: string,
  params: { cursor: string } | Record<string, never>,
) => Promise<Record<string, unknown> | undefined>;

/** The lists of one session whose client knows that they may change. */
export class Lists {
  #capabilities: Capabilities = {};
  #digests: Record<string, string> = {};
  /**
   * By the names of the requests that are open: which list, what was read of it on earlier pages, and the digest of the list if
   * the client is to be told that it has changed: it need not be once it has read it.
   */
  readonly #asked = new Map<Id, { method: string; items: string[]; untold: string | undefined }>();
  /** The same of a list whose next page the client may ask for. */
  readonly #pages = new Map<string, { cursor: string; items: string[]; untold: string | undefined }>();
  /** By the methods of the lists that have changed: their digests now. */
  readonly #changed = new Map<string, string>();

  /** What the server has answered to `initialize`. */
  declare(result: unknown): void {
    const { capabilities } = (result ?? {}) as { capabilities?: unknown };
    this.#capabilities = (capabilities ?? {}) as Capabilities;
  }

  /** The client sends a request, which the server knows by this name. */
  asked(name: Id, { method, params }: Message): void {
    if (method === undefined || !this.#isDeclared(method)) return;
    const page = this.#pages.get(method);
    this.#pages.delete(method);
    const untold = this.#changed.get(method) ?? page?.untold;
    this.#changed.delete(method);
    if (params?.['cursor'] === undefined) this.#asked.set(name, { method, items: [], untold });
    else if (page?.cursor === params['cursor']) this.#asked.set(name, { method, items: page.items, untold });
    else if (untold !== undefined) this.#changed.set(method, untold);
  }

  /** The server answers a request. Whether the client now knows a list otherwise than it is recorded. */
  answered(name: Id, result: unknown): boolean {
    const asked = this.#asked.get(name);
    this.#asked.delete(name);
    const page = result as Record<string, unknown> | undefined;
    if (!asked) return false;
    const { method, untold } = asked;
    if (!page) {
      if (untold !== undefined && !this.#changed.has(method)) this.#changed.set(method, untold);
      return false;
    }
    const items = [...asked.items, ...itemsOf(method, page)];
    const { nextCursor } = page;
    if (typeof nextCursor === 'string') {
      this.#pages.set(method, { cursor: nextCursor, items, untold });
      return false;
    }
    return this.#note(method, digestOf(items));
  }

  /** Records what the client knows. Rejects with a `SessiondError`. */
  store(session: Session): Promise<unknown> {
    return session.set(STATE, this.#digests);
  }

  /**
   * Compares what the client knows with what the server lists now. Rejects with a `SessiondError`.
   */
  async compare(session: Session, page: ListPage): Promise<void> {
    this.#digests = { ...((await session.get<Record<string, string>>(STATE)) ?? {}), ...this.#digests };
    for (const [method, known] of Object.entries(this.#digests)) {
      if (!this.#isDeclared(method)) continue;
      const now = await listed(method, page);
      // The client may have asked itself in the meantime.
      if (now !== undefined && now !== known && this.#digests[method] === known)
        this.#changed.set(method, now);
    }
  }

  /** What the client is to be told of changed lists, which is recorded as told: {@link store} follows. */
  changes(): Message[] {
    const kinds = new Set([...this.#changed.keys()].map((method) => LISTS[method]!.of));
    for (const [method, digest] of this.#changed) this.#note(method, digest);
    this.#changed.clear();
    return [...kinds].map((kind) => ({ jsonrpc: '2.0', method: `notifications/${kind}/list_changed` }));
  }

  #note(method: string, digest: string): boolean {
    const isNew = this.#digests[method] !== digest;
    this.#digests[method] = digest;
    return isNew;
  }

  #isDeclared(method: string): boolean {
    const list = Object.hasOwn(LISTS, method) ? LISTS[method] : undefined;
    return list !== undefined && this.#capabilities[list.of]?.listChanged === true;
  }
}

/** The digest of a whole list. Undefined: the server does not say. */
async function listed(method: string, page: ListPage): Promise<string | undefined> {
  const items: string[] = [];
  let cursor: unknown;
  for (let pages = 0; pages < PAGES_MAX; pages++) {
    const said = await page(method, typeof cursor === 'string' ? { cursor } : {});
    if (!said) return undefined;
    items.push(...itemsOf(method, said));
    cursor = said['nextCursor'];
    if (typeof cursor !== 'string') return digestOf(items);
  }
  return undefined;
}

function itemsOf(method: string, page: Record<string, unknown>): string[] {
  const items = page[LISTS[method]!.items];
  return Array.isArray(items) ? items.map((item) => JSON.stringify(sorted(item))) : [];
}

/** The same for every order of the items. */
function digestOf(items: string[]): string {
  return createHash('sha256')
    .update([...items].sort().join('\n'))
    .digest('hex');
}

/** The same value, whose members are in order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(entries.map(([name, one]) => [name, sorted(one)]));
}
