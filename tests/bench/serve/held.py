"""A call that waits in the middle, until it is told to go on."""

import errno, os, time

from wire import Lost, events


class Held:
    """Calls the tool `steps` as `client`: it tells progress 1, and waits."""

    # Seconds in which a gateway passes on what its server has said.
    PATIENCE = 2

    def __init__(self, client, directory, steps):
        self.client, self.steps = client, steps
        name = f"held-{time.monotonic_ns()}"
        self.began, self.gate, self.done = (directory / f"{name}.{what}" for what in ("began", "gate", "done"))
        os.mkfifo(self.gate)
        arguments = {"steps": steps, "began": str(self.began), "gate": str(self.gate), "done": str(self.done)}
        client.send("tools/call", {"name": "steps", "arguments": arguments, "_meta": {"progressToken": "p"}})
        self.wait(self.began, 30)

    def wait(self, path, seconds):
        until = time.monotonic() + seconds
        while not path.exists():
            if time.monotonic() > until:
                raise Lost(f"the server does not come to {path.suffix[1:]!r}")
            time.sleep(0.001)

    def wait_done(self):
        """Waits until the server has said all, and its gateway has had time to store it."""
        self.wait(self.done, 30)
        time.sleep(0.2)

    def last_event(self):
        """The id of the last event with or before progress 1; none, and why."""
        reply = self.client.reply
        try:
            self.client.read_until(lambda reply: b"notifications/progress" in reply.body, self.PATIENCE)
        except Lost:
            if not reply.body:
                return None, "it sends nothing before the answer"
        found = [name for name, _ in events(reply.body) if name]
        return (found[-1], None) if found else (None, "its events have no id")

    def go_on(self):
        """Lets the server tell the rest. Whether it is still there."""
        until = time.monotonic() + 1
        while True:
            try:
                os.close(os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK))
                return True
            except OSError as error:
                # Nobody waits: not yet, or the server is gone.
                if error.errno != errno.ENXIO or time.monotonic() > until:
                    return False
            time.sleep(0.001)

    def rest(self, reply):
        """In words, how much of what was missing is in the reply."""
        messages = reply.messages()
        told = [one["params"]["progress"] for one in messages if one.get("method") == "notifications/progress"]
        answers = sum("result" in one for one in messages)
        if told == list(range(2, self.steps + 1)) and answers == 1:
            return "all, once"
        errors = [one["error"]["message"] for one in messages if "error" in one]
        return errors[0] if errors else f"{len(told)} of {self.steps - 1} messages, {answers or 'no'} answer"
