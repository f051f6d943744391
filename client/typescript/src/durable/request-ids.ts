// By which names a server knows the requests of its client. They are the client's own ids, unless it uses one
// again, as a page does that was reloaded: the server and the SDK know a request by nothing else.
import { isRequest, type Message } from './sdk.js';

export type Id = string | number;

/**
 * Requests that were cancelled and whose names stay taken: nobody tells when the server has done with one. With
 * more of them, every later request gets a name of its own, so that they can be forgotten.
 */
const CANCELLED_MAX = 1_000;

/** The names in one session. */
export class RequestIds {
  /** Of requests that the server works on, or may: their ids, as the client knows them. */
  readonly #ids = new Map<Id, Id>();
  /** The names of requests that the client can mean, by its ids. */
  readonly #meant = new Map<Id, Set<Id>>();
  readonly #cancelled = new Set<Id>();
  #made = 0;
  #makesAll = false;

  /** A request is the server's now. It gets what this returns. */
  take(request: Message): Message {
    const id = request.id!;
    const name = this.#free(id);
    this.#ids.set(name, id);
    this.#meant.set(id, (this.#meant.get(id) ?? new Set()).add(name));
    return name === id ? request : { ...request, id: name };
  }

  /**
   * The name of the request that a message cancels. Undefined: it cancels none that is known, or one of several.
   * Two pages may share a session, and neither may cancel what the other has asked.
   */
  cancelledBy({ method, params }: Message): Id | undefined {
    if (method !== 'notifications/cancelled') return undefined;
    const [name, ...others] = this.#meant.get(params?.['requestId'] as Id) ?? [];
    return others.length > 0 ? undefined : name;
  }

  /**
   * A message that cancels no request that is meant by its id: nor does it cancel the one that the SDK knows by
   * this id, which may be another.
   */
  cancellingNone(message: Message): Message {
    const { method, params } = message;
    return method === 'notifications/cancelled' && params?.['requestId'] !== undefined
      ? { ...message, params: { ...params, requestId: this.#make() } }
      : message;
  }

  /** The id of a request, as the client knows it. */
  idOf(name: Id): Id {
    return this.#ids.get(name) ?? name;
  }

  /** A message of the server's, as the client knows what it is about. */
  forClient(message: Message): Message {
    const { id, method } = message;
    return method !== undefined || id === this.idOf(id!) ? message : { ...message, id: this.idOf(id!) };
  }

  /** The server has answered a request: it can't be cancelled any more. Its name stays taken until `done`. */
  answered(name: Id): void {
    const id = this.idOf(name);
    const meant = this.#meant.get(id);
    if (meant?.delete(name) && meant.size === 0) this.#meant.delete(id);
  }

  /** The SDK has done with a request, or does not get it. */
  done(name: Id): void {
    this.answered(name);
    this.#ids.delete(name);
  }

  /** The client has cancelled a request. The server may go on with it, so its name stays taken. */
  cancel(name: Id): void {
    this.answered(name);
    this.#cancelled.add(name);
    if (this.#cancelled.size <= CANCELLED_MAX) return;
    this.#makesAll = true;
    for (const one of this.#cancelled) this.done(one);
    this.#cancelled.clear();
  }

  isCancelled(name: Id): boolean {
    return this.#cancelled.has(name);
  }

  /** This name, or a new one where it is taken. */
  #free(name: Id): Id {
    let free = name;
    for (let makes = this.#makesAll; makes || this.#ids.has(free); makes = false) free = this.#make();
    return free;
  }

  #make(): Id {
    return `mcp-sessiond-${++this.#made}`;
  }
}

/** The messages of a POST as the SDK takes them: an array where they came as one. */
export function bodyOf(body: unknown, messages: Message[]): unknown {
  return Array.isArray(body) ? messages : messages[0];
}

/** A message that the SDK knows by its own id, and writes to the client as `forClient`. */
export function asSent(message: Message, forClient: Message): Message {
  if (isRequest(message) || message.id === forClient.id) return forClient;
  // Not among the keys of the message, which the SDK checks.
  return Object.defineProperty({ ...message }, 'toJSON', { value: () => forClient });
}
