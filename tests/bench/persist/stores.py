"""One event store of the SDK, in this process, without HTTP: stores.py ours|sqlite|behind|redis [WHERE]

For each line of its input it prints a round's figures, as JSON: the µs in which an event is stored (p50), the events that fifty
sessions store in a second, and the ms in which the 100 events of a stream are replayed (p50).
"""

import asyncio
import contextlib
import itertools
import json
import statistics
import sys
import time

from mcp_types import jsonrpc_message_adapter

way, *where = sys.argv[1:]
EVENTS, MANY, EACH, REPLAYED, REPLAYS = 300, 50, 20, 100, 20
MESSAGE = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p", "progress": 1}}
MESSAGE["params"]["message"] = "m" * (100 - len(json.dumps(MESSAGE, separators=(",", ":"))) - len(',"message":""'))
message = jsonrpc_message_adapter.validate_python(MESSAGE)
# A stream is one request's: its name does not come again.
names = map(str, itertools.count())


@contextlib.asynccontextmanager
async def ours():
    """What runs some work with a session's store, by the name of the session."""
    from mcp_sessiond.event_store import DurableEventStore

    store = DurableEventStore("bench")

    async def within(session, work):
        # The store knows whose an event is by the request in which it is stored.
        async def app(scope, receive, send):
            done.append(await work(store))

        done = []
        scope = {"type": "http", "method": "POST", "headers": [(b"mcp-session-id", session.encode())]}
        await store.around(app)(scope, None, None)
        return done[0]

    yield within


@contextlib.asynccontextmanager
async def theirs():
    """The same."""
    from mcp_persist import RedisEventStore, SessionScopedEventStore, SQLiteEventStore

    more = {"commit_interval": 0.1} if way == "behind" else {}
    create = RedisEventStore.create if way == "redis" else SQLiteEventStore.create
    async with create(where[0], ttl=3600, **more) as store:
        yield lambda session, work: work(SessionScopedEventStore(store, session))


async def fill(store, events):
    """A new stream with so many events. The id of the one before them, and the seconds that each took."""
    stream, took = next(names), []
    first = await store.store_event(stream, None)
    for _ in range(events):
        began = time.perf_counter()
        id = await store.store_event(stream, message)
        took.append(time.perf_counter() - began)
        # Ours raises nothing.
        assert not id.startswith("not-stored"), "an event was not stored"
    return first, took


async def replay(store):
    """The seconds in which a stream is replayed, each time."""
    first, _ = await fill(store, REPLAYED)
    took = []
    for _ in range(REPLAYS):
        came = []

        async def take(event):
            came.append(event)

        began = time.perf_counter()
        await store.replay_events_after(first, take)
        took.append(time.perf_counter() - began)
        assert len(came) == REPLAYED, f"{len(came)} of {REPLAYED} events came"
    return took


async def main():
    async with ours() if way == "ours" else theirs() as within:
        while await asyncio.to_thread(sys.stdin.readline):
            _, took = await within("session-0", lambda store: fill(store, EVENTS))
            sessions = [f"session-{number}" for number in range(MANY)]
            began = time.perf_counter()
            await asyncio.gather(*(within(session, lambda store: fill(store, EACH - 1)) for session in sessions))
            rate = MANY * EACH / (time.perf_counter() - began)
            replayed = await within("session-0", replay)
            found = {"stored": statistics.median(took) * 1e6, "rate": rate, "replayed": statistics.median(replayed) * 1e3}
            print(json.dumps(found), flush=True)


asyncio.run(main())
