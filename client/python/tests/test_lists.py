"""What a session remembers of its app's lists, page by page."""

import asyncio
import copy
import unittest

import support  # noqa: F401
from mcp_sessiond.asgi.lists import Lists, declaring

TOOLS = [{"name": "a", "title": "A"}, {"name": "b"}]
TOLD = "notifications/tools/list_changed"


def declared(*kinds):
    return {"capabilities": {kind: {"listChanged": True} for kind in kinds}}


class State:
    """A session's state."""

    def __init__(self):
        self.entries = {}

    async def get(self, key):
        return copy.deepcopy(self.entries.get(key))

    async def set(self, key, value):
        self.entries[key] = copy.deepcopy(value)


async def ask(lists, session, method, member, pages):
    """A client asks for a list in these pages. Whether its answers had to be recorded."""
    for at, page in enumerate(pages):
        lists.asked(str(at), {"method": method, "params": {"cursor": f"page-{at}"} if at else {}})
        more = {} if at == len(pages) - 1 else {"nextCursor": f"page-{at + 1}"}
        lists.answered(str(at), {member: page, **more})
    was_new = not lists.is_stored
    if was_new:
        await lists.store(session)
    return was_new


async def told(session, result, listed, asked=None):
    """What a new app's client is told, where the app lists these. `asked`: what it was asked for."""
    lists = Lists(result)

    async def page(method, params):
        if asked is not None:
            asked.append(method)
        found = listed.get(method)
        return found[int(params.get("cursor", 0))] if isinstance(found, list) else found

    await lists.compare(session, page)
    messages = [one["method"] for one in lists.changes()]
    assert lists.changes() == []
    if messages:
        await lists.store(session)
    return messages


class ListsOfASession(unittest.TestCase):
    def test_pages_and_order_do_not_matter(self):
        async def run():
            session, result = State(), declared("tools")
            lists = Lists(result)
            self.assertTrue(await ask(lists, session, "tools/list", "tools", [TOOLS[:1], TOOLS[1:]]))
            self.assertFalse(await ask(lists, session, "tools/list", "tools", [TOOLS]))
            turned = {"tools": [TOOLS[1], {"title": "A", "name": "a"}]}
            self.assertEqual(await told(session, result, {"tools/list": turned}), [])
            pages = [{"tools": TOOLS, "nextCursor": "1"}, {"tools": [{"name": "c"}]}]
            self.assertEqual(await told(session, result, {"tools/list": pages}), [TOLD])
            self.assertEqual(await told(session, result, {"tools/list": pages}), [])

        asyncio.run(run())

    def test_each_list_that_the_app_has_is_declared(self):
        capabilities = {"tools": {"listChanged": False}, "resources": {"subscribe": True}, "logging": {}}
        told = {"tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}, "logging": {}}
        self.assertEqual(declaring({"a": 1, "capabilities": capabilities}), {"a": 1, "capabilities": told})
        for other in ({}, {"capabilities": 7}, None):
            self.assertEqual(declaring(other), other)

    def test_half_a_list_and_what_nobody_asked_for_are_not_compared(self):
        async def run():
            session, result = State(), declared("tools", "prompts")
            lists, asked = Lists(result), []
            lists.asked("1", {"method": "tools/list"})
            lists.answered("1", {"tools": TOOLS[:1], "nextCursor": "more"})
            # Another cursor than that of the next page.
            lists.asked("2", {"method": "tools/list", "params": {"cursor": "other"}})
            lists.answered("2", {"tools": TOOLS[1:]})
            self.assertTrue(lists.is_stored)
            self.assertEqual(await told(session, result, {"tools/list": {"tools": []}}, asked), [])
            self.assertEqual(asked, [])

        asyncio.run(run())

    def test_what_is_not_declared_is_not_recorded(self):
        async def run():
            lists = Lists(declared("prompts"))
            self.assertFalse(await ask(lists, State(), "tools/list", "tools", [TOOLS]))
            lists.asked("1", {"method": 7})

        asyncio.run(run())

    def test_resources_and_templates_are_one_and_a_list_that_fails_is_none(self):
        async def run():
            session, result = State(), declared("resources", "tools")
            lists = Lists(result)
            await ask(lists, session, "resources/list", "resources", [[{"uri": "a"}]])
            await ask(lists, session, "resources/templates/list", "resourceTemplates", [[{"uriTemplate": "b"}]])
            await ask(lists, session, "tools/list", "tools", [TOOLS])
            now = {"resources/list": {"resources": []}, "resources/templates/list": {"resourceTemplates": []}}
            self.assertEqual(await told(session, result, now), ["notifications/resources/list_changed"])

        asyncio.run(run())

    def test_a_client_that_asks_itself_is_not_told(self):
        async def run():
            session, result = State(), declared("tools")
            await ask(Lists(result), session, "tools/list", "tools", [TOOLS])
            then = Lists(result)

            async def page(*_):
                return {"tools": []}

            await then.compare(session, page)
            then.asked("x", {"method": "tools/list", "params": {}})
            then.answered("x", None)
            self.assertEqual([one["method"] for one in then.changes()], [TOLD], "its request has failed")
            then = Lists(result)
            await then.compare(session, page)
            self.assertTrue(await ask(then, session, "tools/list", "tools", [[]]))
            self.assertEqual(then.changes(), [])
            self.assertEqual(await told(session, result, {"tools/list": {"tools": []}}), [])

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
