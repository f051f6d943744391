// What a tool of the SDK's returns for what the SDK does not know: tasks, and errors of JSON-RPC.
import { randomUUID } from 'node:crypto';
import type { TaskView } from '../types.js';
import { fieldsOf, type RpcError } from './rpc.js';
import { isObject, type RequestContext } from './sdk.js';
import type { Work } from './running-task.js';

/** What such a result has, and no other: nobody else knows the name. */
const OURS = `mcp-sessiond/${randomUUID()}`;

/** The work of a call without a task. Its client can't be asked anything; `why` says why there is no task. */
export async function inlineResult<R>(
  context: RequestContext,
  work: (work: Work) => R | Promise<R>,
  why: RpcError,
): Promise<R> {
  const ask = () => {
    const refusal = Promise.reject(why);
    refusal.catch(() => undefined);
    return refusal;
  };
  try {
    return await work({ signal: context.mcpReq.signal, update: async () => undefined, ask });
  } catch (error) {
    if (error === why) return errorResult(why);
    throw error;
  }
}

/** A result that is sent as an error of JSON-RPC: the SDK makes text of what a tool throws. */
export function errorResult<R>(error: RpcError): R {
  return checked({ error: error.json }, error.message);
}

/** A CreateTaskResult. */
export function createdResult<R>(id: string, view: TaskView): R {
  return checked({ result: { resultType: 'task', ...fieldsOf(id, view) } });
}

/** What passes the SDK's own checks of a tool's result, also where the tool has an output schema. */
function checked<R>(answer: object, text = ''): R {
  return { content: [{ type: 'text', text }], isError: true, [OURS]: answer } as unknown as R;
}

/** A message as it is sent. What the SDK has added to a result, such as `_meta`, stays. */
export function unwrapped(message: unknown): unknown {
  if (!isObject(message) || !isObject(message['result'])) return message;
  const { [OURS]: ours, content: _, isError: __, ...added } = message['result'];
  if (!isObject(ours)) return message;
  const { jsonrpc, id } = message;
  const { error, result } = ours;
  return { jsonrpc, id, ...(error ? { error } : { result: { ...added, ...(result as object) } }) };
}
