// Calls what it reads, and writes what it gets, with the official TypeScript client, first version: node v1.mjs URL SECONDS
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { drive } from './driving.mjs';

const client = new Client({ name: 'campaign-v1', version: '1.0.0' });
await drive(client, StreamableHTTPClientTransport, (params, options) => client.callTool(params, undefined, options), -32001);
