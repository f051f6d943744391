"""A daemon of before: older.py DIRECTORY DAEMON FEATURES [FORMER VERSION]

Serves DIRECTORY and passes on what is said to the daemon of the directory DAEMON. Its hello has no feature bits but FEATURES, and it
refuses what the others announce, in the words of a daemon that has never heard of it. Where it is told two versions, the one that the daemon
says, and another one that is as long, it says the other. Writes a line to standard output when it is
ready, and then one for each call: the method, and `close` where an append closes its stream. To the daemon all its clients are this
one process, so it is of no use where the daemon has to know who asks.
"""
import json
import os
import re
import socket
import struct
import sys
import threading

WILLS, CLOSES = 4, 32
# What a request has that needs the feature, in JSON-RPC and in MessagePack.
FIELDS = {
    WILLS: ("open_stream", "will", b"\xa4will"),
    CLOSES: ("append", "close", b"\xa5close\xc3"),
}


def whole(stream, count):
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def frame(stream):
    return whole(stream, struct.unpack(">I", whole(stream, 4))[0])


class Passing:
    """One client, and its connection to the daemon."""

    def __init__(self, client, to, features, versions):
        self.client, self.features, self.versions = client, features, [version.encode() for version in versions]
        self.daemon = socket.socket(socket.AF_UNIX)
        self.daemon.connect(to)
        self.telling = threading.Lock()

    def run(self):
        hello = whole(self.client, 32)
        self.is_json = hello[12] == 2
        self.daemon.sendall(hello)
        welcome = whole(self.daemon, 32)
        known = struct.unpack(">Q", welcome[24:])[0] & self.features
        self.client.sendall(welcome[:24] + struct.pack(">Q", known))
        threading.Thread(target=self.ending, args=(self.answers,), daemon=True).start()
        self.ending(self.calls)

    def ending(self, work):
        try:
            work()
        except (EOFError, OSError):
            for side in (self.client, self.daemon):
                try:
                    side.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def tell(self, message):
        with self.telling:
            self.client.sendall(struct.pack(">I", len(message)) + message)

    def answers(self):
        while True:
            self.tell(self.aged(frame(self.daemon)))

    def aged(self, answer):
        return answer.replace(*self.versions) if self.versions else answer

    def calls(self):
        while True:
            call = frame(self.client)
            method, has = self.read(call)
            if method:
                # Whole lines: other connections write, too.
                sys.stdout.write(method + (" close" if has(CLOSES) else "") + "\n")
                sys.stdout.flush()
            unknown = next((of[1] for bit, of in FIELDS.items() if not self.features & bit and has(bit)), None)
            if unknown:
                self.tell(self.refusal(call, unknown))
            else:
                self.daemon.sendall(struct.pack(">I", len(call)) + call)

    def read(self, call):
        """The method, and what tells whether the call has what needs a feature."""
        if self.is_json:
            message = json.loads(call)
            params = message.get("params", {})
            method = message["method"] if "id" in message else None
            return method, lambda bit: method == FIELDS[bit][0] and FIELDS[bit][1] in params
        named = re.search(rb"\xa4call\x81([\xa1-\xbf])", call)
        if not named:
            return None, lambda _: False
        name = call[named.end() : named.end() + named[1][0] - 0xA0].decode()
        method = re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
        return method, lambda bit: method == FIELDS[bit][0] and FIELDS[bit][2] in call

    def refusal(self, call, field):
        sentence = f"unknown field `{field}`"
        if self.is_json:
            error = {"code": -32602, "message": sentence}
            return json.dumps({"jsonrpc": "2.0", "id": json.loads(call)["id"], "error": error}).encode()
        # {"id": …, "reply": nil, "refused": sentence, "unreadable": true}
        id = re.match(rb"\x83(\xa2id(?:[\x00-\x7f]|\xcc.|\xcd..|\xce.{4}|\xcf.{8}))", call, re.DOTALL)[1]
        refused = b"\xa7refused" + bytes([0xA0 + len(sentence)]) + sentence.encode()
        return b"\x84" + id + b"\xa5reply\xc0" + refused + b"\xaaunreadable\xc3"


if __name__ == "__main__":
    directory, daemon, features, *versions = sys.argv[1:]
    os.mkdir(directory, 0o700)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(directory + "/daemon.sock")
    listening.listen()
    print("ready", flush=True)
    while True:
        passing = Passing(listening.accept()[0], daemon + "/daemon.sock", int(features), versions)
        threading.Thread(target=passing.ending, args=(passing.run,), daemon=True).start()
