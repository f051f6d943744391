"""Sessions that a cookie names, as a browser sends it: the rules of the layer for Rust (`tests/integration/http_server.rs`)."""

from __future__ import annotations

import unittest
from typing import Any

from processes import Served
from raw import Raw

from mcp_sessiond import Sessions
from mcp_sessiond.asgi import SessionCookie

UNKNOWN = "0199a0a0-0000-7000-8000-000000000000"


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

    def test_a_browser_finds_its_session_by_the_cookie_alone(self: Any) -> None:
        browser, id = self.browser()
        browser.cookie = f"theme=dark; {browser.cookie}"
        self.assert_visit(browser, 1, id)
        self.restart()
        self.assert_visit(browser, 2, id)
        # A page that is loaded again sends `initialize` again, and goes on.
        again = browser.begin()
        self.assertEqual((again.status, again.header("mcp-session-id"), again.header("set-cookie")), (200, None, None))
        self.assert_visit(browser, 3, id)
        stream = browser.send("GET")
        self.assertEqual((stream.status, stream.header("mcp-session-id")), (200, None))
        stream.close()
        self.assertEqual(browser.send("DELETE").status, 204)
        self.assertEqual((browser.visits(), browser.send("GET").status), (404, 404))

    def test_a_forged_cookie_leads_nowhere(self: Any) -> None:
        for forged in ("forged", UNKNOWN, "", "x" * 5_000, "\xfc"):
            browser = Browser(self.server.port)
            browser.cookie = f"mcp_session_id={forged}"
            self.assertEqual((browser.visits(), browser.send("DELETE").status), (404, 404))
            fresh = browser.begin()
            named = fresh.header("mcp-session-id")
            self.assertNotIn(named, (None, forged))
            self.assertIn(named, fresh.header("set-cookie"))

    def test_a_cookie_of_another_callers_session_begins_a_new_one(self: Any) -> None:
        alice, id = self.browser("alice")
        bob = Browser(self.server.port, "bob")
        bob.cookie = alice.cookie
        self.assertEqual(bob.visits(), 404)
        self.assertNotEqual(bob.begin().header("mcp-session-id"), id)
        self.assert_visit(alice, 1, id)

    def test_a_cookie_of_nobodys_session_that_was_planted_is_not_taken(self: Any) -> None:
        planted, id = self.browser()
        alice = Browser(self.server.port, "alice")
        alice.cookie = planted.cookie
        self.assertEqual(alice.visits(), 404)
        self.assertNotEqual(alice.begin().header("mcp-session-id"), id)
        self.assert_visit(planted, 1, id)

    def test_of_two_cookies_the_one_that_is_the_callers_counts(self: Any) -> None:
        alice, hers = self.browser("alice")
        bob, his = self.browser("bob")
        both = f"{alice.cookie}; {bob.cookie}"
        self.assert_visit(alice, 1, hers, Cookie=both)
        self.assert_visit(bob, 1, his, Cookie=both)
        self.assert_visit(bob, 2, his, Cookie=f"mcp_session_id={UNKNOWN}; {both}")
        # Only so many are looked at.
        many = "; ".join([f"mcp_session_id={UNKNOWN}"] * 4)
        self.assertEqual(bob.visits(Cookie=f"{many}; {bob.cookie}"), 404)

    def test_the_header_counts_where_the_cookie_disagrees(self: Any) -> None:
        first, one = self.browser()
        _, other = self.browser()
        self.assertEqual(first.visits(Mcp_Session_Id=other), (other, 1, other))
        self.assertEqual(first.visits(Mcp_Session_Id=UNKNOWN), 404)
        self.assert_visit(first, 1, one)
        # `initialize` with the id of a session that is gone begins a new one.
        fresh = first.begin(Mcp_Session_Id=UNKNOWN)
        self.assertEqual(fresh.status, 200)
        self.assertNotIn(fresh.header("mcp-session-id"), (None, one, UNKNOWN))

    def test_cookies_are_off_by_default(self: Any) -> None:
        plain = Browser(self.serve().port)
        begun = plain.begin()
        self.assertIsNone(begun.header("set-cookie"))
        plain.cookie = f"mcp_session_id={begun.header('mcp-session-id')}"
        self.assertEqual(plain.visits(), 400)

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
