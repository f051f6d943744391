"""Servers on the SDK whose events are kept in different ways, as gateways of tests/bench/serve, which they are measured like."""

import pathlib

import installed, keepers, processes
from gateways import Gateway
from wire import FIRST_ID, OLDER, Http, message_of

HERE = pathlib.Path(__file__).parent
SOURCE = installed.ROOT / "client/python/src"


class Client(Http):
    """No two of its requests have the same id: in a session of the SDK's a stream has the id of its request."""

    def send(self, method, params):
        self.number += 1
        body = message_of(method, params, self.era).replace(b"%d" % FIRST_ID, b"%d" % self.number)
        self.post(self.head(method) + self.sized(body))

    def whole(self, seconds=30):
        """To the answer: the SDK does not end a stream that it has replayed."""
        self.read_until(lambda reply: any(word in reply.body[-512:] for word in (b'"result":', b'"error":')), seconds)
        if not self.reply.complete:
            self.close()
        return self.reply


class Server(Gateway):
    """The SDK alone: no event has an id."""

    name, way, keeper = "the SDK alone", "alone", keepers.Nothing

    def prepare(self):
        self.kept = self.keeper()
        self.kept.start()

    def environment(self):
        return {"PYTHONPATH": str(SOURCE), **self.kept.environment}

    def command(self):
        return [installed.PERSIST, HERE / "server.py", self.port, self.way, *self.kept.where]

    def client(self, era=OLDER):
        return Client(self.port, self.path, era)

    def own_pids(self):
        return processes.marked(self.mark)

    def stop(self):
        super().stop()
        self.kept.stop()


class Durable(Server):
    name, way, keeper = "`durable`", "durable", keepers.Daemon


class DurablePower(Durable):
    name, keeper = "`durable`, power", keepers.Power


class Store(Server):
    name, way, keeper = "`DurableEventStore`", "store", keepers.Daemon


class Persist(Server):
    """mcp-persist's `with_persistence`, with durable sessions. It is mounted at a directory."""

    name, way, keeper, path = "mcp-persist, SQLite", "sqlite", keepers.Sqlite, "/mcp/"


class PersistRedis(Persist):
    name, way, keeper = "mcp-persist, Redis", "redis", keepers.Redis


class PersistProxy(Server):
    """mcp-persist's proxy, in front of the SDK alone."""

    name, way, keeper = "mcp-persist-proxy, SQLite", "sqlite", keepers.Sqlite

    def prepare(self):
        super().prepare()
        self.behind = Server().start()

    def command(self):
        to = ["--upstream", f"http://127.0.0.1:{self.behind.port}", "--host", "127.0.0.1", "--port", self.port, "--ttl", 3600]
        return [installed.PERSIST.with_name("mcp-persist-proxy"), *to, "--backend", self.way, "--url", *self.kept.where]

    def stop(self):
        super().stop()
        self.behind.stop()


class PersistBehind(PersistProxy):
    """The same, where what is killed is the server."""

    name = "mcp-persist-proxy, SQLite: its server"

    def kill(self, daemon=False):
        self.behind.kill()

    def start(self):
        if self.behind.process.poll() is not None:
            self.behind.start()
            return self
        return super().start()


SERVERS = [Server, Durable, DurablePower, Store, Persist, PersistRedis, PersistProxy]
