"""SIGKILL of a server, and what a client that comes back to the next one gets."""

import figures
from held import Held
from servers import SERVERS, PersistBehind
from wire import Lost, Refused

# Progress of a call; all but the first is told while its client is away.
STEPS = 20
# Seconds in which a client that asks for the rest of a call has it.
PATIENCE = 5


class Killed:
    """One kill, after a call was answered while its client was away (`answered`), or in the middle of the call."""

    def __init__(self, kind, answered):
        server = kind()
        try:
            server.start()
            client = server.client().initialize()
            held = Held(client, server.directory, STEPS)
            event, why = held.last_event()
            client.close()
            if answered:
                held.go_on()
                held.wait_done()
            server.kill()
            server.start()
            self.session = self.ask(client)
            if not answered:
                # Where the server lives, it has something to tell.
                held.go_on()
            self.rest = self.fetch(client, held, event) if event else f"lost: {why}"
            client.close()
        finally:
            server.stop()

    @staticmethod
    def ask(client):
        """What becomes of the session."""
        try:
            client.tool("get")
            return "goes on"
        except Refused as refused:
            return f"lost: status {refused.args[0]}"
        except (Lost, OSError) as error:
            return f"lost: {error}"

    @staticmethod
    def fetch(client, held, event):
        """The rest of the call, in words."""
        try:
            client.connect()
            client.resume(event)
            reply = client.whole(PATIENCE)
            return held.rest(reply) if reply.status == 200 else f"lost: status {reply.status}"
        except Lost:
            return f"{held.rest(client.reply)} within {PATIENCE} s"
        except OSError as error:
            return f"lost: {error}"


class Kills:
    """All servers."""

    def __init__(self, quick):
        self.rounds = 1 if quick else 3

    def run(self):
        """Measures, and prints the table."""
        figures.head("SIGKILL of", "its session", "the rest of a call that it had answered", "the rest of a call that was open")
        words = lambda of: "; ".join(sorted(set(of)))
        for kind in [*SERVERS, PersistBehind]:
            answered = [Killed(kind, True) for _ in range(self.rounds)]
            opened = [Killed(kind, False) for _ in range(self.rounds)]
            sessions = words(one.session for one in answered + opened)
            figures.row(kind.name, sessions, words(one.rest for one in answered), words(one.rest for one in opened))
        print()
