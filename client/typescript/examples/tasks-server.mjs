// An MCP server whose tasks survive it (MCP 2026-07-28, the Tasks extension): node tasks-server.mjs [PORT]
//
//   npm install ./mcp-sessiond-client-0.1.0.tgz @modelcontextprotocol/server @modelcontextprotocol/node
//   node node_modules/mcp-sessiond-client/examples/tasks-server.mjs 8000
//
// A client that takes tasks and calls `greet` gets a task. It asks for the client's name, and greets it. Kill
// the server with SIGKILL and start it again: a task that has ended still has its result, and one that was
// under way has failed, "the outcome is unknown".
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { taskExtension } from 'mcp-sessiond-client';

const tasks = taskExtension({ service: 'example-tasks' });

const question = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'What is your name?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
  },
};

function greeter() {
  const server = new McpServer({ name: 'greeter', version: '1.0.0' });
  server.registerTool('greet', { description: 'Asks for a name, and greets' }, (context) =>
    tasks.run(context, async (work) => {
      const { content } = await work.ask(question);
      return { content: [{ type: 'text', text: `Hello, ${content?.name ?? 'whoever you are'}!` }] };
    }),
  );
  return tasks.attach(server);
}

const handle = toNodeHandler(tasks.listening(createMcpHandler(greeter)));
const server = createServer((request, response) =>
  request.url === '/mcp' ? handle(request, response) : response.writeHead(404).end(),
);
server.listen(Number(process.argv[2] ?? 8000), '127.0.0.1', () => {
  console.log(`listening at http://127.0.0.1:${server.address().port}/mcp`);
});
