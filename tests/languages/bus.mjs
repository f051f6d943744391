// The bus of a service's processes, in TypeScript's library: bus.mjs listen|publish
import { eventBus } from '../../client/typescript/dist/index.js';

const bus = eventBus({ service: 'languages' });
if (process.argv[2] === 'listen') {
  bus.subscribe((event) => {
    console.log(JSON.stringify(event));
    if (event.kind === 'resource_updated') process.exit();
  });
  // Who hears this hears what comes after it.
  bus.publish({ kind: 'prompts_list_changed' });
} else {
  bus.publish({ kind: 'tools_list_changed' });
  bus.publish({ kind: 'resource_updated', uri: 'file:///shared' });
}
