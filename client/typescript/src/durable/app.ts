// What an app is like whose transport `durable` is given: the transport of a session that no client has is asked.
import { randomUUID } from 'node:crypto';
import { exchange, headersFor, initializeOf } from './exchange.js';
import type { HttpTransport, TransportClass } from './sdk.js';

/** What a transport's class and options make of an app. */
export interface App {
  /** Whether its transport has an id as soon as a client begins a session. */
  hasSessions: boolean;
  /** Whether a POST is answered by one JSON body, without anything that comes before the answer. */
  answersInJson: boolean;
}

const VERSION = '2025-06-18';
/** What any transport takes as the beginning of a session. */
const INITIALIZE = {
  protocolVersion: VERSION,
  capabilities: {},
  clientInfo: { name: 'mcp-sessiond', version: '1' },
};
const INITIALIZED = {
  protocolVersion: VERSION,
  capabilities: {},
  serverInfo: { name: 'mcp-sessiond', version: '1' },
};

/** Asks a transport of its own. An app that refuses to be asked, or answers without its server, is served as the SDK's own. */
export async function appOf(transport: TransportClass, enableJsonResponse: boolean): Promise<App> {
  const app = { hasSessions: true, answersInJson: false };
  try {
    const asked = new transport({ sessionIdGenerator: randomUUID, enableJsonResponse });
    const type = await Promise.race([
      answered(asked, app),
      asked.start().then(() => exchange(asked, headersFor(), initializeOf(INITIALIZE))),
    ]);
    app.answersInJson = type === 'application/json';
    await asked.close();
  } catch {
    // What is known by now counts.
  }
  return app;
}

/** Answers what a transport is asked. Rejects where it takes no answer, and never resolves otherwise. */
function answered(asked: HttpTransport, app: App): Promise<never> {
  return new Promise((_, reject) => {
    asked.onmessage = ({ id }) => {
      app.hasSessions = asked.sessionId !== undefined;
      asked.send({ jsonrpc: '2.0', id, result: INITIALIZED }).catch(reject);
    };
  });
}
