"""A server on FastMCP that has one of each kind, for clients to see: every_kind.py

Its tool `echo` is in server-everything, too. `dotted.name/x` is a name that some models' interfaces refuse.
"""

from dataclasses import dataclass
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from mcp.shared.exceptions import MCPError
from pydantic import Field

server = FastMCP("shown", instructions="Shown is for looking at.", version="1.2.3", list_page_size=4)
# A transparent pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082")


@dataclass
class Weather:
    degrees: float
    words: list[str]


@dataclass
class Answer:
    color: str


@server.tool(title="Echo of shown", tags={"plain"}, annotations={"readOnlyHint": True, "idempotentHint": True}, meta={"example.org/of": "shown"})
def echo(message: Annotated[str, Field(description="What is said", max_length=1000)], times: int = 1) -> str:
    """Says it again.

    In two paragraphs, with “quotes”."""
    return " ".join([message] * times)


@server.tool(annotations={"title": "The weather", "destructiveHint": False, "openWorldHint": True})
def weather(city: str) -> Weather:
    """What has a schema."""
    return Weather(1.5, ["ü", city])


@server.tool
def picture():
    """An image and a text."""
    return ToolResult(content=["a pixel", Image(data=PIXEL, format="png").to_image_content()], meta={"example.org/seen": 1})


@server.tool(name="dotted.name/x")
def dotted() -> str:
    return "dotted"


@server.tool
def fails() -> str:
    """Ends with an error of the tool."""
    raise ToolError("it has failed")


@server.tool
def refuses() -> str:
    """Ends with an error of the protocol."""
    raise MCPError(-32050, "it is refused", {"why": ["of", "old"]})


@server.tool
async def steps(number: int, context: Context) -> str:
    """Tells progress, and logs."""
    for step in range(1, number + 1):
        await context.report_progress(step, number, f"step {step}")
    await context.info("done with the steps")
    return f"{number} steps"


@server.tool
async def asks(context: Context) -> str:
    """Asks the user."""
    said = await context.elicit("Which color?", Answer)
    return f"{said.action} {getattr(said, 'data', None)}"


@server.prompt(title="A review")
def review(what: Annotated[str, Field(description="What is read")], how: str = "closely") -> str:
    """Reviews something."""
    return f"Review {what} {how}."


@server.resource("shown://own", mime_type="text/markdown", annotations={"audience": ["user"], "priority": 0.5})
def own() -> str:
    """One of its own."""
    return "# own"


@server.resource("shown://pixel", mime_type="image/png")
def pixel() -> bytes:
    return PIXEL


@server.resource("shown://logs/{date}.txt", mime_type="text/plain")
def logs(date: str) -> str:
    """A log of a day."""
    return f"log of {date}"


server.run("stdio", show_banner=False)
