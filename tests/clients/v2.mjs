// Calls what it reads, and writes what it gets, with the official TypeScript client, second version: node v2.mjs URL SECONDS
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { drive } from './driving.mjs';

const client = new Client({ name: 'campaign-v2', version: '1.0.0' });
await drive(client, StreamableHTTPClientTransport, (params, options) => client.callTool(params, options), 'REQUEST_TIMEOUT');
