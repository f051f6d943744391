"""The scripted server on the official SDK for Python, with one line of ours added: python_app.py KIND PORT JOURNAL GATES REVOKED [VARIANT [WORD…]]

VARIANT: `plain`; `cookie`: a cookie names sessions, too; `mounted`: below /api, with CORS, and the line around it all; `inside`: the same, and the line around what is mounted;
`stateless`: an app without sessions; `middleware` and `json`, which answers in JSON: an app with
GZip, which codes in any other way that the header `X-Coding` says, and says in `X-Asked` and a cookie which request each response answers.
WORD, of an app that tests/conformance/compare compares: `bare` is the app without the line; with `gzip` it compresses; with `cookies` it knows its visitors by one; with
`stateless` it has no sessions.
KIND: mcp1, mcp2, fastmcp. Its tools are those of stdio.py, without `raw`; with FastMCP `remember`, which counts in `ctx.set_state`; and, after the runner's
Nth `deploy`, `deployed_N`. It has one prompt, which no deploy changes. The SDK's own verifier lets each token in that begins with `t`, but
for those whose name the folder REVOKED has as a file.
"""

import asyncio
import collections
import json
import os
import socket
import sys
import zlib
from pathlib import Path
from typing import Any

# Another version of the library, to compare with: by MCP_SESSIOND_CLIENTS.
clients = os.environ.get("MCP_SESSIOND_CLIENTS") or Path(__file__).resolve().parents[3] / "client"
sys.path.insert(0, str(Path(clients) / "python" / "src"))

import uvicorn
from mcp import types
from mcp.shared.message import ServerMessageMetadata
from starlette.middleware.gzip import GZipMiddleware

from mcp_sessiond.asgi import SessionCookie, durable, session_of

kind, port, journal_path, gates, revoked = sys.argv[1:6]
variant, *words = sys.argv[6:] or ["plain"]
is_stateless = "stateless" in (variant, *words)
journal = os.open(journal_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def is_known(token: str) -> bool:
    return token.startswith("t") and "/" not in token and not os.path.exists(os.path.join(revoked, token))


def access(token: str) -> Any:
    """A token like tNAME.SUBJECT.ISSUER.ANYTHING names its user."""
    _, *user = token.split(".")
    of = {"subject": user[0], "claims": {"iss": user[1]}} if len(user) > 1 else {}
    return AccessToken(token=token, client_id="client", scopes=[], **of)


if kind == "fastmcp":
    from fastmcp import Context, FastMCP
    from fastmcp.server.auth import AccessToken, TokenVerifier

    class Verifier(TokenVerifier):
        async def verify_token(self, token: str) -> AccessToken | None:
            return access(token) if is_known(token) else None

    server = FastMCP("scripted", auth=Verifier())

    @server.tool()
    async def remember(ctx: Context) -> str:
        number = (await ctx.get_state("count") or 0) + 1
        await ctx.set_state("count", number)
        return str(number)
else:
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            return access(token) if is_known(token) else None

    auth = AuthSettings(issuer_url="https://id.example", resource_server_url=None)
    if kind == "mcp1":
        from mcp.server.fastmcp import Context, FastMCP

        server = FastMCP("scripted", token_verifier=Verifier(), auth=auth)
    else:
        from mcp.server.mcpserver import Context
        from mcp.server.mcpserver import MCPServer as FastMCP

        server = FastMCP("scripted", token_verifier=Verifier(), auth=auth)


counts: collections.Counter[str] = collections.Counter()
greeted_sessions: collections.Counter[str] = collections.Counter()


def inner_session(headers: Any) -> str:
    return str(dict(headers).get("mcp-session-id"))


def greeting(app: Any) -> Any:
    """The app, which notes in which session of its own it got `notifications/initialized`."""

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        async def read() -> Any:
            part = await receive()
            if b'"notifications/initialized"' in part.get("body", b""):
                greeted_sessions[inner_session((name.decode(), value.decode()) for name, value in scope["headers"])] += 1
            return part

        await app(scope, read, send)

    return noted


def answering(app: Any) -> Any:
    """The app, whose responses are coded as `X-Coding` says, and name the method that they answer."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        coding = dict(scope["headers"]).get(b"x-coding", b"")
        # Of each part all is sent at once, as a stream of events needs it.
        coder = {b"gzip": zlib.compressobj(wbits=31), b"deflate": zlib.compressobj()}.get(coding)
        asked = scope["method"]

        async def read() -> Any:
            nonlocal asked
            part = await receive()
            if body := part.get("body"):
                asked = json.loads(body).get("method", asked)
            return part

        async def sent(part: Any) -> None:
            if part["type"] == "http.response.start":
                headers = [one for one in part["headers"] if not coding or one[0].lower() != b"content-length"]
                headers += [(b"x-asked", asked.encode()), (b"set-cookie", f"asked={asked}".encode())]
                part = {**part, "headers": headers + ([(b"content-encoding", coding)] if coding else [])}
            elif coder:
                ends = zlib.Z_SYNC_FLUSH if part.get("more_body") else zlib.Z_FINISH
                part = {**part, "body": coder.compress(part.get("body", b"")) + coder.flush(ends)}
            await send(part)

        await app(scope, read, sent)

    return answered


def recognising(app: Any) -> Any:
    """The app, which gives each visitor a cookie, and tells whom it takes a request for."""

    async def recognised(scope: Any, receive: Any, send: Any) -> None:
        cookie = dict(scope.get("headers", ())).get(b"cookie")

        async def sent(part: Any) -> None:
            if part["type"] == "http.response.start":
                told = (b"x-visitor", cookie) if cookie else (b"set-cookie", b"visitor=1; HttpOnly")
                part = {**part, "headers": [*part["headers"], told]}
            await send(part)

        await app(scope, receive, sent)

    return recognised


@server.prompt()
def constant() -> str:
    return "a prompt"


deploys = Path(gates).parent / "deploys"
if deploys.exists():

    @server.tool(name=f"deployed_{deploys.read_text()}")
    async def deployed() -> str:
        return ""


@server.tool()
async def greeted(ctx: Context) -> str:
    request: Any = ctx.request_context
    return str(greeted_sessions[inner_session(request.request.headers)])


def note(key: str | None) -> None:
    if key is not None:
        os.write(journal, f"{key}\n".encode())


@server.tool()
async def count(ctx: Context, key: str | None = None) -> str:
    note(key)
    if "bare" in words or is_stateless:
        request: Any = ctx.request_context
        counts[inner_session(request.request.headers)] += 1
        return str(counts[inner_session(request.request.headers)])
    session = session_of(ctx)
    number = await session.get("count", 0) + 1
    await session.set("count", number)
    return str(number)


@server.tool()
async def echo(value: Any, ctx: Context, key: str | None = None) -> str:
    note(key)
    return json.dumps(value, ensure_ascii=False)


@server.tool()
async def log(ctx: Context, times: int = 1, text: str = "line") -> str:
    for number in range(1, times + 1):
        # The session's own method: what it takes for text differs between the SDKs.
        await ctx.session.send_log_message("info", f"{text} {number}", related_request_id=ctx.request_id)
    return "logged"


@server.tool()
async def ask(ctx: Context) -> str:
    # On the stream of the call: what `list_roots` asks goes to the standalone stream.
    belongs = ServerMessageMetadata(related_request_id=ctx.request_id)
    question: Any = types.ListRootsRequest(method="roots/list")
    if kind == "mcp1":
        question = types.ServerRequest(question)
    try:
        roots = await ctx.session.send_request(question, types.ListRootsResult, metadata=belongs)
    except Exception as error:
        return f"refused: {error}"
    return str(len(roots.roots))


@server.tool(structured_output=False) if kind != "fastmcp" else server.tool(output_schema=None)
async def big(bytes: int, ctx: Context) -> str:
    return "x" * bytes


@server.tool(structured_output=False) if kind != "fastmcp" else server.tool(output_schema=None)
async def nan(ctx: Context, value: str = "NaN") -> Any:
    return {"value": float(value.replace("Infinity", "inf"))}


@server.tool()
async def slow(key: str, ctx: Context, steps: int = 0) -> str:
    note(key)
    for step in range(1, steps + 1):
        await ctx.report_progress(step)
    while not os.path.exists(os.path.join(gates, key)):
        await asyncio.sleep(0.01)
    return "slow"


@server.tool()
async def die(ctx: Context, key: str | None = None) -> str:
    note(key)
    os._exit(1)


given: Any = {"stateless_http": True} if is_stateless else {"json_response": True} if variant == "json" else {}
if kind == "fastmcp":
    app = server.http_app(path="/mcp", **given)
elif kind == "mcp1":
    # Its app has no options.
    for name, value in given.items():
        setattr(server.settings, name, value)
    app = server.streamable_http_app()
else:
    app = server.streamable_http_app(**given)
app.add_middleware(greeting)
if variant in ("middleware", "json") or "gzip" in words:
    app.add_middleware(GZipMiddleware, minimum_size=1)
if variant in ("middleware", "json"):
    app.add_middleware(answering)
if "cookies" in words:
    app.add_middleware(recognising)

if variant in ("plain", "cookie", "stateless", "middleware", "json"):
    app = durable(app, service="scripted", retry_ms=100, cookie=SessionCookie() if variant == "cookie" else None)
else:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.routing import Mount

    # The app has a life of its own, which Starlette does not begin for what is mounted.
    inner, lifespan = app, getattr(app, "lifespan", None) or app.router.lifespan_context
    cors = Middleware(CORSMiddleware, allow_origins=["http://localhost:3000"], expose_headers=["Mcp-Session-Id"])
    if variant == "mounted":
        # One line around the whole app.
        whole = Starlette(routes=[Mount("/api", inner)], middleware=[cors], lifespan=lambda _: lifespan(inner))
        app = whole if "bare" in words else durable(whole, service="scripted", path="/api/mcp", retry_ms=100)
    else:
        # One line around what is mounted.
        kept = durable(inner, service="scripted", retry_ms=100)
        app = Starlette(routes=[Mount("/api", kept)], middleware=[cors], lifespan=lambda _: lifespan(inner))
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", int(port)))
listening.listen(128)
print(f"listening at http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
