// The official SDK in one of its versions, so that a test need not know which: `1.13` … `1.32`, or `2`.

/** Which schema of v1's says what a request is. */
const SCHEMAS = {
  'tools/list': 'ListToolsRequestSchema',
  'tools/call': 'CallToolRequestSchema',
  'prompts/list': 'ListPromptsRequestSchema',
  'prompts/get': 'GetPromptRequestSchema',
  'resources/read': 'ReadResourceRequestSchema',
  'completion/complete': 'CompleteRequestSchema',
};

/**
 * What a server is made of. `on` takes a method and the SDK's own handler. That of a call gets its arguments, `notify`, which
 * sends along with its answer, and `signal`, which is aborted where the call is cancelled.
 */
export async function serverSdk(version) {
  const isV2 = version === '2';
  const load = (file) => import(`sdk-${version}/${file}.js`);
  const { Server } = await (isV2 ? import('@modelcontextprotocol/server') : load('server/index'));
  const { NodeStreamableHTTPServerTransport, StreamableHTTPServerTransport } = await (isV2
    ? import('@modelcontextprotocol/node')
    : load('server/streamableHttp'));
  const Transport = NodeStreamableHTTPServerTransport ?? StreamableHTTPServerTransport;
  /** For frameworks on Web standards: v2, and v1 from 1.26 on. */
  const webTransport = async () =>
    (await (isV2 ? import('@modelcontextprotocol/server') : load('server/webStandardStreamableHttp')))
      .WebStandardStreamableHTTPServerTransport;
  const types = isV2 ? {} : await load('types');
  const on = (server, method, handler) =>
    server.setRequestHandler(isV2 ? method : types[SCHEMAS[method]], handler);
  const onList = (server, list) => on(server, 'tools/list', list);
  const onPrompts = (server, list) => on(server, 'prompts/list', list);
  const onCall = (server, call) =>
    on(server, 'tools/call', ({ params }, extra) => {
      const { signal, notify, _meta } = isV2
        ? { ...extra.mcpReq, notify: (message) => extra.mcpReq.notify(message), _meta: params._meta }
        : { ...extra, notify: extra.sendNotification };
      return call(params, { extra, notify, signal, token: _meta?.progressToken });
    });
  return { Server, Transport, webTransport, on, onList, onPrompts, onCall };
}

/** The client of a version. `2-stdio`, `1.32-stdio`: its transport for stdio. */
export async function clientSdk(version) {
  if (version === '2-stdio') return import('@modelcontextprotocol/client/stdio');
  if (version.endsWith('-stdio')) return import(`sdk-${version.slice(0, -'-stdio'.length)}/client/stdio.js`);
  if (version === '2') {
    const { Client, StreamableHTTPClientTransport: Transport } = await import('@modelcontextprotocol/client');
    return { Client, Transport, call: (client, params, options) => client.callTool(params, options) };
  }
  const { Client } = await import(`sdk-${version}/client/index.js`);
  const { StreamableHTTPClientTransport: Transport } = await import(
    `sdk-${version}/client/streamableHttp.js`
  );
  return {
    Client,
    Transport,
    call: (client, params, options) => client.callTool(params, undefined, options),
  };
}
