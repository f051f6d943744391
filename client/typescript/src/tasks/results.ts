// What a tool of the SDK's returns for what the SDK does not know: tasks, and errors of JSON-RPC.
import type { TaskView } from '../types.js';
import { fieldsOf, type RpcError } from './rpc.js';
import { isObject, type RequestContext } from './sdk.js';
import type { Work } from './work.js';

/** What a result has that is to be an error of JSON-RPC: the SDK makes text of what a tool throws. */
const REFUSED = 'mcp-sessiond/refused';

/** The work of a call that is no task. Its client can't be asked anything: `why` there is no task. */
export async function inline<R>(
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
    if (error === why) return refused(why);
    throw error;
  }
}

/** A result that is sent as an error of JSON-RPC. */
export function refused<R>(error: RpcError): R {
  const text = { type: 'text', text: error.message };
  return { content: [text], isError: true, [REFUSED]: error.json } as unknown as R;
}

/** A CreateTaskResult. `content` and `isError` are for the SDK's own checks of a tool's result, and are not sent. */
export function created<R>(id: string, view: TaskView): R {
  return { resultType: 'task', ...fieldsOf(id, view), content: [], isError: true } as unknown as R;
}

/** An answer as the extension has it. */
export function rectified(message: unknown): unknown {
  if (!isObject(message) || !isObject(message['result'])) return message;
  const { [REFUSED]: error, ...result } = message['result'];
  if (error !== undefined) return { jsonrpc: '2.0', id: message['id'], error };
  if (result['resultType'] !== 'task') return message;
  const { content: _, isError: __, ...task } = result;
  return { ...message, result: task };
}
