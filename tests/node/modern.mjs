// What the conformance suite (@modelcontextprotocol/conformance 0.2.0-alpha.12) asks of a server of MCP 2026-07-28, on the
// second version of the official SDK: node modern.mjs [http]
//
// It speaks on stdio. With `http` the same server speaks HTTP by itself, and prints where it listens.
import { randomBytes } from 'node:crypto';
import {
  acceptedContent, createMcpHandler, createRequestStateCodec, fromJsonSchema, inputRequired, McpServer, ResourceTemplate,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import {
  later, object, prompts, resources, template, text, tools as common,
} from './asked.mjs';

const codec = createRequestStateCodec({ key: randomBytes(32) });
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';

// What a tool or a prompt needs to know: each is answered by the client in its next request.

const string = { type: 'string' };
const elicit = (message, name, type = 'string') => inputRequired.elicit({
  message, requestedSchema: object({ [name]: { type } }, [name]),
});
const sample = (question, maxTokens) => inputRequired.createMessage({
  messages: [{ role: 'user', content: text(question) }], maxTokens,
});
const NAME = 'What is your name?';
const answered = ({ mcpReq: { inputResponses } }, wanted) => wanted.every((key) => inputResponses?.[key]);

// A tool that asks for all of `questions` at once, with a state of its own if `isKept`, and answers when it has them all.
const asking = (questions, isKept) => ({
  run: async (_, context) => {
    if (answered(context, Object.keys(questions))) return [text('All was answered.')];
    return inputRequired({ inputRequests: questions, requestState: isKept && await codec.mint({ asked: questions }) });
  },
});

const tools = {
  test_input_required_result_elicitation: {
    run: (_, { mcpReq }) => {
      const { name } = acceptedContent(mcpReq.inputResponses, 'user_name') ?? {};
      if (typeof name === 'string') return [text(`Hello, ${name}!`)];
      return inputRequired({ inputRequests: { user_name: elicit(NAME, 'name') } });
    },
  },
  test_input_required_result_sampling: asking({ capital_question: sample('What is the capital of France?', 100) }),
  test_input_required_result_list_roots: asking({ client_roots: inputRequired.listRoots() }),
  test_input_required_result_request_state: asking({ confirm: elicit('Please confirm', 'ok', 'boolean') }, true),
  test_input_required_result_tampered_state: asking({ confirm: elicit('Please confirm', 'ok', 'boolean') }, true),
  test_input_required_result_multiple_inputs: asking({
    user_name: elicit(NAME, 'name'), greeting: sample('Generate a greeting', 50), client_roots: inputRequired.listRoots(),
  }, true),
  test_input_required_result_multi_round: {
    run: async (_, context) => {
      const { round = 0 } = context.mcpReq.requestState() ?? {};
      if (round === 2 && answered(context, ['step2'])) return [text('Both steps were answered.')];
      const [key, question] = round === 1 && answered(context, ['step1'])
        ? ['step2', elicit('Step 2: What is your favorite color?', 'color')]
        : ['step1', elicit(`Step 1: ${NAME}`, 'name')];
      const requestState = await codec.mint({ round: key === 'step1' ? 1 : 2 });
      return inputRequired({ inputRequests: { [key]: question }, requestState });
    },
  },
  test_input_required_result_capabilities: {
    run: (_, { mcpReq }) => {
      const declared = mcpReq.envelope?.[CAPABILITIES] ?? {};
      const inputRequests = {
        ...(declared.elicitation && { name: elicit(NAME, 'name') }),
        ...(declared.sampling && { greeting: sample('Generate a greeting', 50) }),
      };
      return inputRequired({ inputRequests });
    },
  },
  // Needs what the client may not have declared; the SDK refuses it then.
  test_missing_capability: asking({ greeting: sample('Generate a greeting', 50) }),
  test_streaming_elicitation: asking({ user_name: elicit(NAME, 'name') }),
  test_logging_tool: {
    run: async (_, { mcpReq }) => {
      await mcpReq.log('info', 'Tool execution started');
      await later(50);
      return [text('What was wanted is in the log.')];
    },
  },
  test_header_parameters: {
    inputSchema: object({ region: { ...string, 'x-mcp-header': 'Region' }, query: string }, ['region']),
    run: (given) => [text(JSON.stringify(given))],
  },
};

// A server. `changed` says to the clients that listen what has changed: over HTTP they are not connected to this server.
function make(changed) {
  const server = new McpServer({ name: 'modern', version: '1.0.0' }, {
    capabilities: {
      tools: { listChanged: true },
      resources: { subscribe: true, listChanged: true },
      prompts: { listChanged: true },
      logging: {},
      completions: {},
    },
    requestState: { verify: codec.verify },
  });
  const { toolsChanged, promptsChanged } = changed ?? {
    toolsChanged: () => server.sendToolListChanged(),
    promptsChanged: () => server.sendPromptListChanged(),
  };
  const add = (name, inputSchema, run) => {
    const config = { description: `What ${name} asks for`, inputSchema: fromJsonSchema(inputSchema ?? object()) };
    server.registerTool(name, config, async (given, context) => {
      const said = await run(given, context);
      return Array.isArray(said) ? { content: said } : said;
    });
  };
  for (const [name, { inputSchema, call }] of Object.entries(common)) {
    add(name, inputSchema, (given, { mcpReq: { notify, _meta } }) => {
      const { progressToken } = _meta ?? {};
      return call(given, { notify, progressToken });
    });
  }
  for (const [name, { inputSchema, run }] of Object.entries(tools)) add(name, inputSchema, run);
  for (const [what, tell] of [['tool', toolsChanged], ['prompt', promptsChanged]]) {
    add(`test_trigger_${what}_change`, undefined, () => {
      tell();
      return [text(`The ${what}s have changed.`)];
    });
  }

  for (const [uri, { mimeType, ...said }] of Object.entries(resources)) {
    const name = uri.slice('test://'.length);
    server.registerResource(name, uri, { mimeType, description: `The resource ${name}` }, () => ({
      contents: [{ uri, mimeType, ...said }],
    }));
  }
  const { mimeType } = template;
  const pattern = new ResourceTemplate(template.uri, { list: undefined });
  server.registerResource('template', pattern, { mimeType }, (uri, { id }) => ({
    contents: [{ uri: uri.href, mimeType, text: template.text(id) }],
  }));

  for (const [name, { required, get }] of Object.entries(prompts)) {
    const given = Object.fromEntries((required ?? []).map((one) => [one, { ...string, description: `The ${one}` }]));
    const argsSchema = required && fromJsonSchema(object(given, required));
    const config = { description: `The prompt ${name}`, argsSchema };
    server.registerPrompt(name, config, (values) => ({ messages: get(values) }));
  }
  const description = 'A prompt that asks for its context';
  server.registerPrompt('test_input_required_result_prompt', { description }, ({ mcpReq }) => {
    const { context } = acceptedContent(mcpReq.inputResponses, 'user_context') ?? {};
    if (context) return { messages: [{ role: 'user', content: text(`In the context of ${context}`) }] };
    return inputRequired({ inputRequests: { user_context: elicit('What context should the prompt use?', 'context') } });
  });
  server.server.setRequestHandler('completion/complete', () => ({
    completion: { values: [], total: 0, hasMore: false },
  }));
  return server;
}

async function listen() {
  const { createServer } = await import('node:http');
  const sdk = await import('@modelcontextprotocol/node');
  const handler = createMcpHandler(() => make(handler.notify));
  const [isHost, isOrigin] = [sdk.localhostHostValidation(), sdk.localhostOriginValidation()];
  const serve = sdk.toNodeHandler(handler);
  const listening = createServer((request, response) => {
    if (isHost(request, response) && isOrigin(request, response)) serve(request, response);
  });
  listening.listen(0, '127.0.0.1', () => {
    console.log(`listening at http://127.0.0.1:${listening.address().port}/mcp`);
  });
}

if (process.argv[2] === 'http') await listen();
else serveStdio(() => make());
