// An issuer of tokens, and an official client that signs in by itself: node signs_in.mjs KEYS
//
// The issuer's public keys are written to the file KEYS, and its URL is printed. Then it reads the URL of a server, whose address is
// all that its client knows. It prints, as JSON, what the client asked a token for, and how many tools it was told of.
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import readline from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { ClientCredentialsProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { keys, token } from './tokens.mjs';

writeFileSync(process.argv[2], keys);

const asked = [];
const server = createServer(async (request, response) => {
  const answer = (status, value) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  if (request.url === '/.well-known/oauth-authorization-server') {
    return answer(200, {
      issuer,
      authorization_endpoint: `${issuer}/authorize`,
      token_endpoint: `${issuer}/token`,
      response_types_supported: ['code'],
      grant_types_supported: ['client_credentials'],
      token_endpoint_auth_methods_supported: ['client_secret_basic'],
    });
  }
  if (request.url !== '/token') return answer(404, {});
  let body = '';
  for await (const part of request) body += part;
  const resource = new URLSearchParams(body).get('resource');
  asked.push(resource);
  const claims = { iss: issuer, aud: resource, sub: 'ann', exp: Math.floor(Date.now() / 1000) + 600 };
  answer(200, { access_token: token('ed', {}, claims), token_type: 'Bearer', expires_in: 600 });
});
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
console.log(issuer);

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const url = new URL((await lines.next()).value);
const authProvider = new ClientCredentialsProvider({ clientId: 'test', clientSecret: 'secret', expectedIssuer: issuer });
const client = new Client({ name: 'test', version: '1' });
await client.connect(new StreamableHTTPClientTransport(url, { authProvider }));
const { tools } = await client.listTools();
console.log(JSON.stringify({ asked, tools: tools.length }));
process.exit(0);
