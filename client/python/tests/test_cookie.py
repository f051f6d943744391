"""Sessions that a cookie names, as a browser sends it: what tests/conformance/http/cookies.json does not say of every language."""

from __future__ import annotations

import unittest
from typing import Any

from processes import Served
from raw import Raw

from mcp_sessiond import Sessions
from mcp_sessiond.asgi import SessionCookie


class Browser(Raw):
    """A client that has its session by the cookie alone."""

    def __init__(self, port: int, token: str | None = None) -> None:
        super().__init__(port, token)
        self.cookie = ""

    def send(self, method: str, message: object = None, **headers: str) -> Any:
        return super().send(method, message, **({"Cookie": self.cookie} | headers if self.cookie else headers))

    def begin(self, **headers: str) -> Any:
        """The response to `initialize`."""
        info = {"name": "browser", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": info}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        return self.send("POST", message, **headers)

    def visits(self, **headers: str) -> Any:
        """The session, which call of it this is, and what the header says; else the status."""
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "visits", "arguments": {}}}
        response = self.send("POST", call, **headers)
        if response.status != 200:
            return response.status
        session, number, _ = response.answer()["result"]["content"][0]["text"].split()
        return session, int(number), response.header("mcp-session-id")


class Cookies(Served):
    more = ("cookie",)

    def browser(self: Any, token: str | None = None) -> tuple[Browser, str]:
        """A browser with a session, and the id of that."""
        browser = Browser(self.server.port, token)
        begun = browser.begin()
        browser.cookie, _, attributes = begun.header("set-cookie").partition("; ")
        id = begun.header("mcp-session-id")
        self.assertEqual(browser.cookie, f"mcp_session_id={id}")
        self.assertEqual(attributes, "Path=/; HttpOnly; SameSite=Strict")
        browser.send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return browser, id

    def assert_visit(self: Any, browser: Browser, number: int, id: str, **headers: str) -> None:
        # A script could read the header.
        self.assertEqual(browser.visits(**headers), (id, number, None))

    def test_a_cookie_of_nobodys_session_that_was_planted_is_not_taken(self: Any) -> None:
        planted, id = self.browser()
        alice = Browser(self.server.port, "alice")
        alice.cookie = planted.cookie
        self.assertEqual(alice.visits(), 404)
        self.assertNotEqual(alice.begin().header("mcp-session-id"), id)
        self.assert_visit(planted, 1, id)

    def test_a_session_that_ended_elsewhere_is_begun_anew(self: Any) -> None:
        browser, id = self.browser()

        async def terminate(sessions: Sessions) -> None:
            await (await sessions.open(id)).terminate()

        self.daemon.ask(terminate)
        self.assertEqual(browser.visits(), 404)
        self.assertNotEqual(browser.begin().header("mcp-session-id"), id)


class Mcp1(Cookies, unittest.TestCase):
    kind = "mcp1"


class Mcp2(Cookies, unittest.TestCase):
    kind = "mcp2"


class FastMcp(Cookies, unittest.TestCase):
    kind = "fastmcp"


class Attributes(unittest.TestCase):
    def test_what_a_cookie_says(self) -> None:
        self.assertEqual(
            SessionCookie("/mcp", secure=True, same_site="Lax").naming("id"),
            (b"set-cookie", b"mcp_session_id=id; Path=/mcp; HttpOnly; SameSite=Lax; Secure"),
        )
        self.assertIn(b"SameSite=None; Secure", SessionCookie(same_site="None").naming("id")[1])
        for path in ("", "mcp", "/; Domain=a", "/\n"):
            with self.assertRaisesRegex(ValueError, "path"):
                SessionCookie(path)


if __name__ == "__main__":
    unittest.main()
