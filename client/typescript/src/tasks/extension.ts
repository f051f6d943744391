// The Tasks extension of MCP 2026-07-28 (SEP-2663) for a server on the SDK's v2: what an author calls.
import { Causes } from '../causes.js';
import { isCode, SessiondError } from '../errors.js';
import { warner, type Options, type Warn } from '../options.js';
import type { Caller, TaskView } from '../types.js';
import { bearerToken, credential } from '../wire.js';
import { TaskStore } from './task-store.js';
import { ListenHandler } from './listen-handler.js';
import { truncated } from './persist.js';
import { createdResult, inlineResult, unwrapped, errorResult } from './results.js';
import { declares, requireDeclared, detailedTask, EXTENSION, INTERNAL, required, RpcError } from './rpc.js';
import {
  ANSWERS,
  ANYTHING,
  capabilitiesIn,
  isObject,
  withAnswers,
  type AnyServer,
  type Asking,
  type Fields,
  type HandlerLike,
  type RequestContext,
  type ServerLike,
  type Transport,
} from './sdk.js';
import { RunningTask, type Work } from './running-task.js';

/** How long a task is kept after its creation, in ms, unless its work says otherwise: an hour. */
const TTL_MS = 3600_000;
/** How often clients should ask for a task, in ms. */
const POLL_MS = 1_000;

/** How tasks work. */
export interface TaskExtensionOptions extends Options {
  /** The service whose tasks they are: every process that says this name finds them. */
  service: string;
  /**
   * Whose a request is: a task is found by the caller that began it, and by nobody else. By default that is
   * whoever has the same bearer token; without one, whoever knows the task's id and has none either. Check tokens before.
   */
  caller?: (asking: Asking) => Caller | undefined;
}

/** How one task begins. */
export interface RunOptions {
  /** How long it is kept after its creation, in ms: an hour, and at most what is configured (a day). */
  ttlMs?: number;
  /** How often clients should ask for it, in ms: 1,000. */
  pollMs?: number;
  /** What people are told of its state at first. */
  message?: string;
  /** Refuses clients that take no tasks (-32021). By default they wait for the result. */
  required?: boolean;
}

/** Tasks that survive the requests that began them, and are found by every process of the service. */
export interface TaskExtension {
  /** Serves tasks on a server, before it is connected. Returns the server. */
  attach<S extends AnyServer>(server: S): S;
  /**
   * For a tool's handler to return: does the work as a task, which is stored before the client hears of it.
   * `context` is what the SDK has given to the handler. Where the client takes no tasks, or the daemon is away,
   * the work is done while the client waits.
   */
  run<R extends object>(
    context: RequestContext,
    work: (work: Work) => R | Promise<R>,
    options?: RunOptions,
  ): Promise<R>;
  /** What `createMcpHandler` has made, with notifications of tasks for clients that listen to them. */
  listening<H extends HandlerLike>(handler: H): H;
}

/**
 * The Tasks extension of MCP 2026-07-28 on the daemon, for `@modelcontextprotocol/server`.
 *
 * ```ts
 * const tasks = taskExtension({ service: 'shop' });
 * server.registerTool('report', { description: 'Takes long' }, (context) =>
 *   tasks.run(context, async (work) => ({ content: [{ type: 'text', text: await report(work.signal) }] })));
 * tasks.attach(server);
 * ```
 */
export function taskExtension(options: TaskExtensionOptions): TaskExtension {
  return new Extension(options);
}

class Extension implements TaskExtension {
  readonly #store: TaskStore;
  readonly #caller: (asking: Asking) => Caller | undefined;
  readonly #warn: Warn;
  readonly #causes: Causes;
  /** What this process works on: it need not wait to hear what it has been told itself. */
  readonly #running = new Map<string, RunningTask>();
  #attached = false;
  #failing = false;

  constructor({ service, caller = bearer, ...options }: TaskExtensionOptions) {
    this.#store = new TaskStore(service, options);
    this.#caller = caller;
    this.#warn = warner(options.log);
    this.#causes = new Causes(this.#warn);
  }

  attach<S extends AnyServer>(server: S): S {
    const inner = ('server' in server ? server.server : server) as ServerLike;
    inner.registerCapabilities({ extensions: { [EXTENSION]: {} } });
    const on = (method: string, answer: (params: any, context: RequestContext) => Promise<object>) =>
      inner.setRequestHandler(
        method,
        { params: ANYTHING, result: ANYTHING },
        async (params: object, context: RequestContext) => {
          const capabilities = capabilitiesIn(context.mcpReq.envelope);
          if (!capabilities) throw RpcError.noMethod();
          requireDeclared(capabilities);
          try {
            return await answer(params, context);
          } catch (error) {
            throw this.#refusal(error);
          }
        },
      );
    on('tasks/get', ({ taskId }, context) => this.#get(this.#callerOf(context), taskId));
    on('tasks/update', (params, context) => this.#update(this.#callerOf(context), params));
    on('tasks/cancel', ({ taskId }, context) => this.#cancel(context, taskId));
    const connect = inner.connect.bind(inner);
    inner.connect = async (transport: Transport) => {
      const send = transport.send.bind(transport);
      transport.send = (message, sending) => send(unwrapped(message), sending);
      await connect(transport);
      const { onmessage } = transport;
      transport.onmessage = (message, extra) => onmessage?.(withAnswers(message), extra);
    };
    this.#attached = true;
    return server;
  }

  async run<R extends object>(
    context: RequestContext,
    work: (work: Work) => R | Promise<R>,
    { ttlMs = TTL_MS, pollMs = POLL_MS, message, required: must }: RunOptions = {},
  ): Promise<R> {
    if (!this.#attached)
      throw new SessiondError('invalid_argument', 'call `attach(server)` before a tool returns a task');
    const untasked = (why: RpcError) => (must ? errorResult<R>(why) : inlineResult(context, work, why));
    const capabilities = capabilitiesIn(context.mcpReq.envelope) ?? {};
    if (!declares(capabilities)) return untasked(RpcError.missing(required));
    const caller = this.#callerOf(context);
    const begin = {
      ttlMs: Math.round(ttlMs),
      pollMs: Math.round(pollMs),
      ...(message === undefined ? {} : { message: truncated(message) }),
    };
    let made;
    try {
      made = await this.#store.create(caller, begin);
      this.#failing = false;
    } catch (error) {
      // The author's options are wrong, which waiting would hide.
      if (isCode(error, 'invalid_argument')) throw error;
      if (!this.#failing) this.#warn(`no task can be created, so clients wait for results: ${String(error)}`);
      this.#failing = true;
      return untasked(RpcError.internal('the task could not be created: try again later'));
    }
    const { id, task, view } = made;
    // Who has gone by now never hears of the task.
    if (context.mcpReq.signal.aborted) void task.cancel().catch(() => undefined);
    else {
      const running = new RunningTask(id, task, capabilities, this.#warn);
      this.#running.set(id, running);
      void running.done(work, view).finally(() => this.#running.delete(id));
    }
    return createdResult(id, view);
  }

  listening<H extends HandlerLike>(handler: H): H {
    const find = (asking: Asking, id: string) => this.#store.find(this.#caller(asking), id);
    const open = new ListenHandler(handler, find, (error) => this.#refusal(error));
    return {
      ...handler,
      fetch: (request: Request, options?: any) => open.fetch(request, options),
      close: () => open.close(),
    };
  }

  /** The refusal that an error comes to. What it hides from the client is logged. */
  #refusal(error: unknown): RpcError {
    const refusal = RpcError.of(error);
    if (refusal.code === INTERNAL && refusal !== error)
      this.#causes.log('requests for tasks are refused', error);
    return refusal;
  }

  #callerOf({ http = {} }: RequestContext): Caller | undefined {
    return this.#caller(http);
  }

  async #get(caller: Caller | undefined, taskId: unknown): Promise<object> {
    const { id, task } = await this.#store.find(caller, taskId);
    return detailedTask(id, await task.view());
  }

  async #update(caller: Caller | undefined, { taskId, [ANSWERS]: answers }: Fields): Promise<object> {
    const { id, task } = await this.#store.find(caller, taskId);
    if (!isObject(answers))
      throw RpcError.invalid('`inputResponses` must be an object of responses by the keys of their requests');
    // What was not asked, or is answered, is ignored, however much of it there is.
    const { inputs } = await task.view();
    const open = inputs.filter(({ key, response }) => response === undefined && Object.hasOwn(answers, key));
    const answer = Object.fromEntries(open.map(({ key }) => [key, answers[key]]));
    if (open.length > 0) await this.#apply(id, task.update({ answer }));
    return {};
  }

  async #cancel(context: RequestContext, taskId: unknown): Promise<object> {
    const { id, task } = await this.#store.find(this.#callerOf(context), taskId);
    await this.#apply(id, task.cancel());
    return {};
  }

  /** A client has changed a task, unless it has ended. */
  async #apply(id: string, change: Promise<TaskView>): Promise<void> {
    try {
      const view = await change;
      this.#running.get(id)?.observe(view);
    } catch (error) {
      if (!isCode(error, 'task_ended')) throw error;
    }
  }
}

/** The caller with the bearer token of a request, of which the daemon gets the hash. */
function bearer({ authInfo, req }: Asking): Caller | undefined {
  const token = authInfo?.token ?? bearerToken(req?.headers.get('authorization'));
  return token === undefined ? undefined : credential(token);
}
