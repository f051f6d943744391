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

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC';
const SOUND = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==';

const text = (said) => ({ type: 'text', text: said });
const image = { type: 'image', data: PIXEL, mimeType: 'image/png' };
const embedded = (uri, mimeType, said) => ({ type: 'resource', resource: { uri, mimeType, text: said } });
const object = (properties = {}, required = []) => ({ type: 'object', properties, required });
const later = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

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
// Of JSON Schema 2020-12, with keywords that must come through as they are.
const dialect = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { address: object({ street: { type: 'string' }, city: { type: 'string' } }) },
  properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' } },
  additionalProperties: false,
};

async function ask(sendRequest, message, requestedSchema, word) {
  const asked = { method: 'elicitation/create', params: { message, requestedSchema } };
  const { action, content = {} } = await sendRequest(asked, ElicitResultSchema);
  return [text(`${word}: action=${action}, content=${JSON.stringify(content)}`)];
}

const tools = {
  test_simple_text: { call: () => [text('This is a simple text response for testing.')] },
  test_image_content: { call: () => [image] },
  test_audio_content: { call: () => [{ type: 'audio', data: SOUND, mimeType: 'audio/wav' }] },
  test_embedded_resource: {
    call: () => [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
  },
  test_multiple_content_types: {
    call: () => {
      const said = JSON.stringify({ test: 'data', value: 123 });
      const resource = embedded('test://mixed-content-resource', 'application/json', said);
      return [text('Multiple content types test:'), image, resource];
    },
  },
  test_tool_with_logging: {
    call: async (_, { sendNotification }) => {
      await sendNotification(log('Tool execution started'));
      await later(50);
      await sendNotification(log('Tool processing data'));
      await later(50);
      await sendNotification(log('Tool execution completed'));
      return [text('All three messages were sent.')];
    },
  },
  test_tool_with_progress: {
    call: async (_, { sendNotification, _meta }) => {
      const progressToken = _meta?.progressToken;
      for (const progress of [0, 50, 100]) {
        if (progress) await later(50);
        const params = { progressToken, progress, total: 100 };
        if (progressToken !== undefined) await sendNotification({ method: 'notifications/progress', params });
      }
      return [text('Progress was told in three steps.')];
    },
  },
  test_error_handling: {
    call: () => {
      throw new Error('This tool intentionally returns an error for testing');
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
  json_schema_2020_12_tool: { inputSchema: dialect, call: (given) => [text(JSON.stringify(given))] },
};

server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: Object.entries(tools).map(([name, { inputSchema = object() }]) => ({
    name, description: `What ${name} asks for`, inputSchema,
  })),
}));
server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  try {
    return { content: await tools[params.name].call(params.arguments ?? {}, extra) };
  } catch (error) {
    return { content: [text(error.message)], isError: true };
  }
});

// Resources.

const resources = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: PIXEL },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Nothing changes here.' },
};
const template = /^test:\/\/template\/([^/]+)\/data$/;

server.setRequestHandler(ListResourcesRequestSchema, () => ({
  resources: Object.entries(resources).map(([uri, { mimeType }]) => {
    const name = uri.slice('test://'.length);
    return { uri, name, description: `The resource ${name}`, mimeType };
  }),
}));
server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
  resourceTemplates: [
    { uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' },
  ],
}));
server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => {
  const [, id] = uri.match(template) ?? [];
  const said = () => JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
  const found = id ? { mimeType: 'application/json', text: said() } : resources[uri];
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

const user = (content) => ({ role: 'user', content });
const required = (name) => ({ name, description: `The ${name}`, required: true });
const prompts = {
  test_simple_prompt: { get: () => [user(text('This is a simple prompt for testing.'))] },
  test_prompt_with_arguments: {
    arguments: [required('arg1'), required('arg2')],
    get: ({ arg1, arg2 }) => [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))],
  },
  test_prompt_with_embedded_resource: {
    arguments: [required('resourceUri')],
    get: ({ resourceUri }) => [
      user(embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.')),
      user(text('Please process the embedded resource above.')),
    ],
  },
  test_prompt_with_image: { get: () => [user(image), user(text('Please analyze the image above.'))] },
};

server.setRequestHandler(ListPromptsRequestSchema, () => ({
  prompts: Object.entries(prompts).map(([name, prompt]) => ({
    name, description: `The prompt ${name}`, arguments: prompt.arguments ?? [],
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
