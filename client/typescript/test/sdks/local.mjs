// A server of MCP 2026-07-28 that tells of tasks, on the official SDK, in the process of a test.
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { taskExtension } from '../../dist/index.js';

export function listening(options) {
  const tasks = taskExtension(options);
  const createServer = () => tasks.attach(new McpServer({ name: 'local', version: '1.0.0' }));
  return tasks.listening(createMcpHandler(createServer, { legacy: 'reject' }));
}
