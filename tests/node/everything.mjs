// What the conformance suite (@modelcontextprotocol/conformance 0.1.16) asks of a server, on stdio: node everything.mjs
//
// `test_reconnection` can't close its stream, which a server on stdio does not have: it answers only.
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import {
  CallToolRequestSchema, CompleteRequestSchema, CreateMessageResultSchema, ElicitResultSchema, GetPromptRequestSchema,
  ListPromptsRequestSchema, ListResourceTemplatesRequestSchema, ListResourcesRequestSchema, ListToolsRequestSchema,
  ReadResourceRequestSchema, SetLevelRequestSchema, SubscribeRequestSchema, UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import {
  later, object, prompts, resources, template, text, tools as common,
} from './asked.mjs';

const server = new Server({ name: 'everything', version: '1.0.0' }, {
  capabilities: {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {},
  },
});
const log = (data) => ({ method: 'notifications/message', params: { level: 'info', data } });

// Tools.

const named = (values) => values.map(([value, title]) => ({ const: value, title }));
const ones = ['option1', 'option2', 'option3'];
const titled = named([['value1', 'First Option'], ['value2', 'Second Option'], ['value3', 'Third Option']]);
const enums = object({
  untitledSingle: { type: 'string', enum: ones },
  titledSingle: { type: 'string', oneOf: titled },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2'], enumNames: ['Option 1', 'Option 2'] },
  untitledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { type: 'string', enum: ones } },
  titledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { anyOf: titled } },
});
const defaults = object({
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
});

async function ask(sendRequest, message, requestedSchema, word) {
  const asked = { method: 'elicitation/create', params: { message, requestedSchema } };
  const { action, content = {} } = await sendRequest(asked, ElicitResultSchema);
  return [text(`${word}: action=${action}, content=${JSON.stringify(content)}`)];
}

const tools = {
  ...common,
  test_tool_with_logging: {
    call: async (_, { notify }) => {
      await notify(log('Tool execution started'));
      await later(50);
      await notify(log('Tool processing data'));
      await later(50);
      await notify(log('Tool execution completed'));
      return [text('All three messages were sent.')];
    },
  },
  test_reconnection: {
    call: async () => {
      await later(100);
      return [text('This came after the time that a client has to reconnect.')];
    },
  },
  test_sampling: {
    inputSchema: object({ prompt: { type: 'string' } }, ['prompt']),
    call: async ({ prompt }, { sendRequest }) => {
      const params = { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 };
      const asked = { method: 'sampling/createMessage', params };
      const { content } = await sendRequest(asked, CreateMessageResultSchema);
      return [text(`LLM response: ${content.text}`)];
    },
  },
  test_elicitation: {
    inputSchema: object({ message: { type: 'string' } }, ['message']),
    call: ({ message }, { sendRequest }) => {
      const words = { username: { type: 'string' }, email: { type: 'string' } };
      return ask(sendRequest, message, object(words, ['username', 'email']), 'User response');
    },
  },
  test_elicitation_sep1034_defaults: {
    call: (_, { sendRequest }) => ask(sendRequest, 'Take the defaults', defaults, 'Elicitation completed'),
  },
  test_elicitation_sep1330_enums: {
    call: (_, { sendRequest }) => ask(sendRequest, 'Take some of them', enums, 'Elicitation completed'),
  },
};

server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: Object.entries(tools).map(([name, { inputSchema = object() }]) => ({
    name, description: `What ${name} asks for`, inputSchema,
  })),
}));
server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  const { sendNotification: notify, sendRequest } = extra;
  const context = { notify, sendRequest, progressToken: extra._meta?.progressToken };
  try {
    return { content: await tools[params.name].call(params.arguments ?? {}, context) };
  } catch (error) {
    return { content: [text(error.message)], isError: true };
  }
});

// Resources.

const matched = new RegExp(`^${template.uri.replace('{id}', '([^/]+)')}$`);

server.setRequestHandler(ListResourcesRequestSchema, () => ({
  resources: Object.entries(resources).map(([uri, { mimeType }]) => {
    const name = uri.slice('test://'.length);
    return { uri, name, description: `The resource ${name}`, mimeType };
  }),
}));
server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
  resourceTemplates: [
    { uriTemplate: template.uri, name: 'template', mimeType: template.mimeType },
  ],
}));
server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => {
  const [, id] = uri.match(matched) ?? [];
  const found = id ? { mimeType: template.mimeType, text: template.text(id) } : resources[uri];
  if (!found) throw new Error(`there is no ${uri}`);
  return { contents: [{ uri, ...found }] };
});
for (const schema of [SubscribeRequestSchema, UnsubscribeRequestSchema]) {
  server.setRequestHandler(schema, async ({ method, params }, { sendNotification }) => {
    await sendNotification(log(`${method} ${params.uri}`));
    return {};
  });
}

// Prompts.

const argument = (name) => ({ name, description: `The ${name}`, required: true });

server.setRequestHandler(ListPromptsRequestSchema, () => ({
  prompts: Object.entries(prompts).map(([name, { required = [] }]) => ({
    name, description: `The prompt ${name}`, arguments: required.map(argument),
  })),
}));
server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({
  messages: prompts[params.name].get(params.arguments ?? {}),
}));

// Utilities.

server.setRequestHandler(SetLevelRequestSchema, async ({ params }, { sendNotification }) => {
  await sendNotification(log(`the level is ${params.level}`));
  return {};
});
server.setRequestHandler(CompleteRequestSchema, () => ({
  completion: { values: [], total: 0, hasMore: false },
}));

await server.connect(new StdioServerTransport());
