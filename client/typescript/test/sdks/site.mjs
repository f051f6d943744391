// A site with express-session, whose sessions survive it: node site.mjs PORT. `/` answers how often it was
// visited, `/out` ends the session.
import express from 'express';
import session from 'express-session';
import { expressStore } from '../../dist/index.js';

const store = expressStore(session.Store, { service: 'web', start: false });
const app = express();
app.use(
  session({ store, secret: 'a secret', resave: false, saveUninitialized: false, cookie: { maxAge: 60_000 } }),
);
app.get('/', (request, response) => {
  request.session.visits = (request.session.visits ?? 0) + 1;
  response.send(String(request.session.visits));
});
app.get('/out', (request, response) =>
  request.session.destroy((error) => response.send(String(error ?? 'out'))),
);
app.get('/count', (_, response) => store.length((error, count) => response.send(String(error ?? count))));
app.get('/clear', (_, response) => store.clear((error) => response.send(String(error ?? 'clear'))));
const listening = app.listen(Number(process.argv[2]), '127.0.0.1', () => {
  console.log(`listening at http://127.0.0.1:${listening.address().port}`);
});
