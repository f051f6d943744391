// What the conformance suite asks of servers of either era of MCP: the tools, resources and prompts that
// everything.mjs and modern.mjs have in common.
//
// `call(given, { notify, progressToken })` of a tool answers its content.
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC';
const SOUND = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==';

export const text = (said) => ({ type: 'text', text: said });
export const object = (properties = {}, required = []) => ({ type: 'object', properties, required });
export const later = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const image = { type: 'image', data: PIXEL, mimeType: 'image/png' };
const embedded = (uri, mimeType, said) => ({ type: 'resource', resource: { uri, mimeType, text: said } });

// JSON Schema 2020-12, with keywords that must come through as they are.
const string = { type: 'string' };
const dialect = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { address: { $anchor: 'addressDef', ...object({ street: string, city: string }) } },
  properties: {
    name: string,
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: string,
    email: string,
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

export const tools = {
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
  test_tool_with_progress: {
    call: async (_, { notify, progressToken }) => {
      for (const progress of [0, 50, 100]) {
        if (progress) await later(50);
        const params = { progressToken, progress, total: 100 };
        if (progressToken !== undefined) await notify({ method: 'notifications/progress', params });
      }
      return [text('Progress was told in three steps.')];
    },
  },
  test_error_handling: {
    call: () => {
      throw new Error('This tool intentionally returns an error for testing');
    },
  },
  json_schema_2020_12_tool: { inputSchema: dialect, call: (given) => [text(JSON.stringify(given))] },
};

export const resources = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: PIXEL },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Nothing changes here.' },
};
export const template = {
  uri: 'test://template/{id}/data',
  mimeType: 'application/json',
  text: (id) => JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
};

const user = (content) => ({ role: 'user', content });
export const prompts = {
  test_simple_prompt: { get: () => [user(text('This is a simple prompt for testing.'))] },
  test_prompt_with_arguments: {
    required: ['arg1', 'arg2'],
    get: ({ arg1, arg2 }) => [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))],
  },
  test_prompt_with_embedded_resource: {
    required: ['resourceUri'],
    get: ({ resourceUri }) => [
      user(embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.')),
      user(text('Please process the embedded resource above.')),
    ],
  },
  test_prompt_with_image: { get: () => [user(image), user(text('Please analyze the image above.'))] },
};
