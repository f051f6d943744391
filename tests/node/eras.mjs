// A counter of the SDK's second version, which speaks both eras of MCP, but one of them at a time: node eras.mjs
//
// Its tool `increment` answers the count.
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

let count = 0;

serveStdio(() => {
  const server = new McpServer({ name: 'eras', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.registerTool('increment', {}, () => ({ content: [{ type: 'text', text: String(++count) }] }));
  return server;
});
