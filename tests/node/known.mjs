// What is asked of the servers that the tests know: with which arguments their tools are called, and what they say of
// themselves, which has to be waited for. Everything is chosen so that the answers are the same at every run.
import fs from 'node:fs';
import path from 'node:path';

/// Makes the files that the servers work on, in a directory that is made anew.
export function prepare(place) {
  const files = path.join(place, 'files');
  fs.rmSync(files, { recursive: true, force: true });
  fs.rmSync(path.join(place, 'memory.jsonl'), { force: true });
  fs.mkdirSync(path.join(files, 'deep', 'er'), { recursive: true });
  fs.mkdirSync(path.join(files, 'other'));
  fs.writeFileSync(path.join(files, 'poem.txt'), 'one\ntwo\nthree \u{1F426}\n"four"\t\\\n');
  fs.writeFileSync(path.join(files, 'deep', 'er', 'note.md'), '# Note\n\nnothing\n');
  fs.writeFileSync(path.join(files, 'dot.png'), Buffer.from('iVBORw0KGgo=', 'base64'));
  return files;
}

const redirected = { url: 'https://example.com/', message: 'Go there', errorPath: true };

const everything = () => ({
  // It asks for the roots 350 ms after it was initialised, and says so when it has them. What is asked before is
  // answered between these two or before them, as it comes.
  rests: 'Roots updated: 1',
  tools: {
    echo: [{ message: 'hello' }, { message: 'Zürich \u{1F426} \u2028 "\\\n' }, { message: 'x'.repeat(100_000) }, {}],
    'get-annotated-message': ['error', 'success', 'debug'].map((messageType) => ({ messageType, includeImage: true })),
    'get-resource-links': [{ count: 4 }, { count: 11 }],
    'get-resource-reference': [
      { resourceType: 'Text', resourceId: 1 },
      { resourceType: 'Blob', resourceId: 2 },
      { resourceType: 'Text', resourceId: -1 },
    ],
    'get-structured-content': ['New York', 'Chicago', 'Los Angeles'].map((location) => ({ location })),
    'get-sum': [{ a: 1, b: 2 }, { a: 0.1, b: 0.2 }, { a: 'one', b: 2 }],
    // Its default would be fetched from the network.
    'gzip-file-as-resource': ['resource', 'resourceLink'].map((outputType) => ({
      name: 'hello.gz',
      data: 'data:text/plain,hello',
      outputType,
    })),
    // On and off: each says at once what it says every five seconds from then on.
    'toggle-simulated-logging': [{}, {}],
    'toggle-subscriber-updates': [{}, {}],
    'trigger-long-running-operation': [{ duration: 0.1, steps: 2 }],
    'trigger-sampling-request': [{ prompt: 'Say something', maxTokens: 7 }],
    'trigger-sampling-request-async': [{ prompt: 'Say something later', maxTokens: 7 }],
    'trigger-url-elicitation': [
      { url: 'https://example.com/', message: 'Go there', elicitationId: 'one' },
      redirected,
      redirected,
    ],
    'simulate-research-query': [{ topic: 'python', ambiguous: true }],
  },
  prompts: { 'args-prompt': [{ city: 'Bern' }, { city: 'Bern', state: 'BE' }, {}] },
  slow: { name: 'trigger-long-running-operation', arguments: { duration: 0.3, steps: 3 } },
  // It says its last word although it was cancelled, which is how one knows that it is over.
  cancelled: {
    name: 'trigger-long-running-operation',
    arguments: { duration: 3, steps: 2 },
    over: '{"progress":2,"total":2,',
  },
  subscribed: { tool: 'toggle-subscriber-updates', uri: 'demo://resource/dynamic/text/1' },
  rootsSeen: 'Roots updated: 2',
});

const river = { name: 'Aare', entityType: 'river', observations: ['cold', 'green'] };
const lake = { name: 'Brienzersee', entityType: 'lake', observations: [] };
const flows = { from: 'Aare', to: 'Brienzersee', relationType: 'fills' };

const memory = () => ({
  tools: {
    create_entities: [{ entities: [river, lake] }, { entities: [] }, { entities: 1 }],
    create_relations: [{ relations: [flows] }],
    add_observations: [
      { observations: [{ entityName: 'Aare', contents: ['long'] }] },
      { observations: [{ entityName: 'Rhine', contents: ['longer'] }] },
    ],
    delete_entities: [{ entityNames: ['Rhine'] }],
    delete_observations: [{ deletions: [{ entityName: 'Aare', observations: ['cold'] }] }],
    delete_relations: [{ relations: [{ ...flows, relationType: 'drains' }] }],
    search_nodes: [{ query: 'lake' }, { query: 'nothing' }],
    open_nodes: [{ names: ['Aare'] }],
  },
  subscribed: { tool: 'create_entities', arguments: { entities: [river] }, uri: 'memory://knowledge-graph' },
});

const filesystem = (files) => {
  const at = (name) => path.join(files, name);
  const edits = [{ oldText: 'two', newText: 'deux' }];
  return {
    // It asks for the roots at once.
    rests: '"method":"roots/list"',
    tools: {
      read_file: [{ path: at('poem.txt') }],
      read_text_file: [{ path: at('poem.txt'), head: 2 }, { path: at('poem.txt'), tail: 1 }, { path: '/etc/passwd' }],
      read_media_file: [{ path: at('dot.png') }],
      read_multiple_files: [{ paths: [at('poem.txt'), at('missing'), at('deep/er/note.md')] }],
      write_file: [{ path: at('other/new.txt'), content: 'written\n' }],
      edit_file: [{ path: at('poem.txt'), edits, dryRun: true }, { path: at('poem.txt'), edits }],
      create_directory: [{ path: at('other/made') }],
      list_directory: [{ path: files }, { path: at('missing') }],
      list_directory_with_sizes: [{ path: at('deep'), sortBy: 'size' }, { path: files }],
      directory_tree: [{ path: files }],
      move_file: [{ source: at('other/new.txt'), destination: at('other/old.txt') }],
      search_files: [{ path: files, pattern: '**/*.md' }],
      get_file_info: [{ path: at('dot.png') }],
      list_allowed_directories: [{}],
    },
  };
};

const tables = {
  'mcp-servers/everything': everything,
  'memory-server': memory,
  'secure-filesystem-server': filesystem,
};

/// What is known of a server, by the name that it gives itself. Of others nothing is: their tools are called with what
/// follows from the schema.
export const known = (name, files) => ({ tools: {}, prompts: {}, ...tables[name]?.(files) });

/// A value that fits a schema, the same at every call.
export function fitting(schema = {}) {
  const { default: usual, enum: allowed, oneOf, anyOf, type, format, minimum, properties = {}, items } = schema;
  if (usual !== undefined) return usual;
  if (schema.const !== undefined) return schema.const;
  if (allowed) return allowed[0];
  if (oneOf ?? anyOf) return fitting((oneOf ?? anyOf)[0]);
  const formats = { email: 'a@example.com', uri: 'https://example.com/', date: '2026-01-02' };
  switch (type) {
    case 'string': return formats[format] ?? 'text';
    case 'integer':
    case 'number': return minimum ?? 1;
    case 'boolean': return true;
    case 'array': return [fitting(items)];
    case 'object': return Object.fromEntries(Object.entries(properties).map(([name, one]) => [name, fitting(one)]));
    default: return null;
  }
}

/// The arguments for a tool of which only the name is known.
export function given(tool, files) {
  for (const table of Object.values(tables)) {
    const all = table(files).tools[tool];
    if (all) return all;
  }
  return undefined;
}
