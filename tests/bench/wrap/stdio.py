"""A host of one MCP server on stdio, with no more between its clock and the pipes than there has to be."""

import collections, json, os, re, select, subprocess, time

# What a pipe holds on Linux.
CHUNK = 64 * 1024
# Some servers write the id first, others last.
ID = re.compile(rb'"id": ?(\d+)')


class Lost(Exception):
    """The server has closed its output, or does not answer."""


class Refused(Exception):
    """The server has answered an error."""


class Host:
    """`prefix` stands before the names of its tools."""

    def __init__(self, command, env=None, prefix=""):
        self.prefix = prefix
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | (env or {}),
            bufsize=0,
        )
        self.pid = self.process.pid
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.input, False), os.set_blocking(self.output, False)
        self.last, self.rest = 0, b""
        # What was not written yet; lines that were read and not looked at.
        self.out, self.lines = collections.deque(), collections.deque()
        self.blocked = False
        self.poll = select.poll()
        self.poll.register(self.output, select.POLLIN)

    def initialize(self):
        client = {"name": "bench", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return self

    def request(self, method, params, timeout=30):
        """Its result."""
        number = self.number()
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
        until = time.monotonic() + timeout
        while True:
            line = self.next_line(until)
            answer = json.loads(line)
            if answer.get("id") == number and "method" not in answer:
                break
        if "error" in answer or answer["result"].get("isError"):
            raise Refused(answer)
        return answer["result"]

    def tool(self, name, arguments=None, timeout=30):
        """The text that it answers."""
        params = {"name": self.prefix + name, "arguments": arguments or {}}
        return self.request("tools/call", params, timeout)["content"][0]["text"]

    def drive(self, tool, arguments, calls, in_flight):
        """The seconds that each of so many calls took."""
        params = json.dumps({"name": self.prefix + tool, "arguments": arguments}).encode()
        began, took = {}, []

        def call():
            number = self.number()
            line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}\n' % (number, params)
            began[number] = time.perf_counter()
            self.send(line)

        for _ in range(in_flight):
            call()
        until = time.monotonic() + 120
        while len(took) < calls:
            line = self.next_line(until)
            now = time.perf_counter()
            found = ID.search(line[:64]) or ID.search(line[-64:])
            if not found or int(found[1]) not in began:
                continue
            if b'"error"' in line[:64] or b'"error"' in line[-200:]:
                raise Refused(line)
            took.append(now - began.pop(int(found[1])))
            if len(took) + len(began) < calls:
                call()
        return took

    def number(self):
        self.last += 1
        return self.last

    def send(self, line):
        self.out.append(memoryview(line))
        self.write()

    def write(self):
        while self.out:
            try:
                written = os.write(self.input, self.out[0])
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Its output ends as well.
                self.out.clear()
                break
            line = self.out.popleft()
            if written < len(line):
                self.out.appendleft(line[written:])
        if bool(self.out) != self.blocked:
            self.blocked = not self.blocked
            if self.blocked:
                self.poll.register(self.input, select.POLLOUT)
            else:
                self.poll.unregister(self.input)

    def next_line(self, until):
        """`until` is of the monotonic clock."""
        parts = [self.rest]
        while not self.lines:
            left = until - time.monotonic()
            events = self.poll.poll(max(left, 0) * 1000)
            if not events:
                self.rest = b"".join(parts)
                raise Lost("no answer in time")
            for file, _ in events:
                if file == self.input:
                    self.write()
                    continue
                chunk = os.read(self.output, CHUNK)
                if not chunk:
                    raise Lost("end of output")
                parts.append(chunk)
                if b"\n" in chunk:
                    *lines, rest = b"".join(parts).split(b"\n")
                    self.lines.extend(lines)
                    parts = [rest]
        self.rest = b"".join(parts) if len(parts) > 1 else parts[0]
        return self.lines.popleft()

    def close(self):
        """Ends its input, and waits until it has exited."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill(), self.process.wait()
        self.process.stdout.close()

    def kill(self):
        self.process.kill(), self.process.wait()
        self.process.stdin.close(), self.process.stdout.close()
