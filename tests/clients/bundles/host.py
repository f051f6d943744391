"""A host of a bundle on stdio: what it asks, and all that it hears."""

import asyncio
import json


class Call:
    """One call, and what became of it: `text`, or `error`."""

    def __init__(self, key, server, tool, arguments):
        self.key, self.server, self.tool, self.arguments = key, server, tool, arguments
        self.progress, self.text, self.error = [], None, None
        self.is_cancelled, self.is_abandoned, self.done = False, False, asyncio.Event()


class Host:
    """One connection. Its ids begin with 1, as those of the connection before did. `bad(what)` is told what must not be. `logs`: the last log message of
    each server that the connection before has heard. Some that were on their way when it was killed may be missing.
    """

    def __init__(self, bad, logs=None):
        self.bad, self.last, self.calls, self.waiting = bad, 0, {}, {}
        self.ended, self.changed, self.logs, self.heard_of = set(), asyncio.Event(), dict(logs or {}), set()
        self.follows = logs is not None

    async def start(self, command, env, cwd, errors):
        with open(errors, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, env=env, cwd=cwd, limit=2**24)
        self.reading = asyncio.create_task(self._read())
        client = {"name": "campaign", "version": "1"}
        capabilities = {"sampling": {}}
        result = await self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client})
        self.instructions = result["result"].get("instructions", "")
        self.write({"method": "notifications/initialized"})
        return self

    def write(self, message):
        try:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        except (OSError, RuntimeError):
            # It was killed.
            pass

    async def request(self, method, params, seconds=60):
        """The whole answer, or None where the connection has ended."""
        self.last += 1
        waiting = self.waiting[self.last] = asyncio.get_running_loop().create_future()
        self.write({"id": self.last, "method": method, "params": params})
        return await asyncio.wait_for(waiting, seconds)

    def call(self, call, name):
        """Begins a call."""
        self.last += 1
        call.id = self.last
        self.calls[call.id] = call
        params = {"name": name, "arguments": call.arguments, "_meta": {"progressToken": f"{call.id}"}}
        self.write({"id": call.id, "method": "tools/call", "params": params})

    def cancel(self, call):
        call.is_cancelled = True
        self.write({"method": "notifications/cancelled", "params": {"requestId": call.id}})

    async def tools(self):
        """The tools by their names: server, and its own name for it. None where the connection has ended."""
        self.changed.clear()
        answer = await self.request("tools/list", {})
        if answer is None:
            return None
        listed = [(tool["name"], tuple(tool["description"].split())) for tool in answer["result"]["tools"]]
        if len(dict(listed)) < len(listed):
            self.bad(f"a name is listed twice: {listed}")
        return dict(listed)

    async def _read(self):
        # What a front had written is read to its end also after a kill.
        while line := await self.process.stdout.readline():
            if not line.endswith(b"\n"):
                break
            self._hear(json.loads(line))
        for call in self.calls.values():
            call.is_abandoned = True
            call.done.set()
        for waiting in self.waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def _hear(self, message):
        method = message.get("method")
        if method is None:
            self._answered(message)
        elif "id" in message:
            self._ask(message)
        elif method == "notifications/progress":
            params = message["params"]
            call = self.calls.get(int(params["progressToken"]))
            if call is None:
                self.ended or self.bad(f"progress of no call: {message}")
            else:
                call.progress.append((params["progress"], params["message"]))
        elif method == "notifications/message":
            data = message["params"]["data"]
            if isinstance(data, dict) and "of" in data:
                self._log(data["of"], data["number"])
        elif method == "notifications/tools/list_changed":
            self.changed.set()

    def _log(self, of, number):
        expected = self.logs.get(of, 0) + 1
        may_miss = self.follows and of not in self.heard_of
        if number < expected or number > expected and not may_miss:
            self.bad(f"log message {number} of {of} and not {expected}")
        self.logs[of] = number
        self.heard_of.add(of)

    def _ask(self, message):
        text = message["params"]["messages"][0]["content"]["text"]
        key, server, _ = text.split()
        if not str(message["id"]).startswith(f"{server}:"):
            self.bad(f"{server} has asked with the id {message['id']}")
        content = {"type": "text", "text": f"to-{key}"}
        self.write({"id": message["id"], "result": {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}})

    def _answered(self, message):
        if waiting := self.waiting.pop(message["id"], None):
            return waiting.done() or waiting.set_result(message)
        call = self.calls.pop(message["id"], None)
        if call is None:
            return self.bad(f"an answer to nobody: {message}")
        if "error" in message:
            call.error = message["error"]
        else:
            call.text = message["result"]["content"][0]["text"]
        self.ended.add(call.id)
        call.done.set()
