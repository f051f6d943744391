// The official SDK in one of its versions, so that a test need not know which: `1.13` … `1.32`, or `2`.

/**
 * What a server is made of. Each handler gets the arguments of a call, `notify`, which sends along with its
 * answer, and `signal`, which is aborted where the call is cancelled.
 */
export async function serverSdk(version) {
  if (version === '2') {
    const { Server } = await import('@modelcontextprotocol/server');
    const { NodeStreamableHTTPServerTransport: Transport } = await import('@modelcontextprotocol/node');
    const onList = (server, list) => server.setRequestHandler('tools/list', list);
    const onPrompts = (server, list) => server.setRequestHandler('prompts/list', list);
    const onCall = (server, call) =>
      server.setRequestHandler('tools/call', ({ params }, context) =>
        call(params, {
          extra: context,
          notify: (message) => context.mcpReq.notify(message),
          signal: context.mcpReq.signal,
          token: params._meta?.progressToken,
        }),
      );
    return { Server, Transport, onList, onPrompts, onCall };
  }
  const { Server } = await import(`sdk-${version}/server/index.js`);
  const { StreamableHTTPServerTransport: Transport } = await import(
    `sdk-${version}/server/streamableHttp.js`
  );
  const { CallToolRequestSchema, ListPromptsRequestSchema, ListToolsRequestSchema } = await import(
    `sdk-${version}/types.js`
  );
  const onList = (server, list) => server.setRequestHandler(ListToolsRequestSchema, list);
  const onPrompts = (server, list) => server.setRequestHandler(ListPromptsRequestSchema, list);
  const onCall = (server, call) =>
    server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) =>
      call(params, {
        extra,
        notify: extra.sendNotification,
        signal: extra.signal,
        token: params._meta?.progressToken,
      }),
    );
  return { Server, Transport, onList, onPrompts, onCall };
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
