"""The page on which people judge, served to this machine alone.

Whoever has the address may judge, so it holds a random token. What other pages of the browser
could send is refused by its Host and Origin, and the page itself may load and run nothing but the
files beside this module.
"""

import contextlib
import importlib
import json
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import resources
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from sklearn_clm.caching import HumanJudge
from sklearn_clm.judging._session import JudgingSession, Turn, Wanted
from sklearn_clm.judging._view import images, pair_view, png, visible

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_HOST = "127.0.0.1"
_LARGEST_BODY = 2_000
_LONGEST_NOTE = 300
_FILES = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
    "page.svg": ("page.svg", "image/svg+xml"),
}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def serve(
    judge: HumanJudge,
    wanted: Wanted = (),
    *,
    port: int = 0,
    judged_by: str | None = None,
) -> None:
    """Serve the page on which people judge, until it is interrupted.

    The address, printed at the start, holds a random token and works on this machine alone. Each
    verdict is on the disk before the next pair is shown.

    Parameters
    ----------
    judge : HumanJudge
        Keeps the verdicts.
    wanted : sequence of WantedVerdict or callable, default=()
        The pairs; or a function that raises :class:`sklearn_clm.caching.VerdictsWanted` as long
        as it wants verdicts, such as one that runs a calibration, and then returns what it found,
        which the page shows as text.
    port : int, default=0
        Where to listen; 0 takes a free one.
    judged_by : str, default=None
        Who judges; None is what the judge says.

    Examples
    --------
    >>> from sklearn_clm.caching import HumanJudge
    >>> from sklearn_clm.judging import serve
    >>> judge = HumanJudge("verdicts.sqlite", judge="Ada")
    >>> serve(judge, judge.wanted())  # doctest: +SKIP
    Judge at http://127.0.0.1:41873/xQ3Z.../ (Ctrl-C ends it)
    """
    uvicorn = _needed("uvicorn")
    session = JudgingSession(judge, wanted, judged_by=judged_by)
    token = secrets.token_urlsafe(32)
    try:
        listening = socket.create_server((_HOST, port))
    except OSError as error:
        raise ValueError(
            f"port must be free, got {port} instead ({error.strerror}); port=0 takes a free one."
        ) from None
    with listening:
        # connections take it over; else the end of an answer waits 40 ms for an acknowledgement
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            judging_app(session, token=token, port=port),
            log_level="error",
            access_log=False,  # it would hold the token
            server_header=False,
            ws="none",
            lifespan="off",
            limit_concurrency=100,
            timeout_graceful_shutdown=5,
        )
        print(f"Judge at http://{_HOST}:{port}/{token}/ (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
    print(f"{session.n_judged} judged.")


def judging_app(session: JudgingSession, *, token: str, port: int) -> "Starlette":
    """The page as an ASGI application.

    Parameters
    ----------
    session : JudgingSession
        What is shown, and where verdicts go.
    token : str
        First part of every path; without it nothing is found.
    port : int
        Port in the Host and Origin that are let in.

    Returns
    -------
    starlette.applications.Starlette
    """
    applications = _needed("starlette.applications")
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Mount, Route

    folder = resources.files("sklearn_clm.judging")
    contents = {
        path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in _FILES.items()
    }

    def file(request: "Request") -> Response:
        content, kind = contents[request.url.path.rpartition("/")[2]]
        return Response(content, media_type=kind)

    def turn(request: "Request") -> Response:
        return JSONResponse(_turn_view(session, session.turn(_tab(request))))

    def image(request: "Request") -> Response:
        try:
            pair = session.pair(request.path_params["id"])
        except ValueError:
            pair = None
        found = [] if pair is None else images(pair)
        number = request.path_params["number"]
        if number >= len(found):
            return PlainTextResponse("no such image", 404)
        return Response(png(found[number]), media_type="image/png")

    async def verdict(request: "Request") -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST_BODY:
                return PlainTextResponse("the body is too large", 413)
        try:
            id_, key, note = _verdict(bytes(body))
        except (ValueError, RecursionError):
            return PlainTextResponse("not a verdict", 400)
        try:
            taken = await run_in_threadpool(session.act, _tab(request), id_, key, note)
        except KeyError:
            return PlainTextResponse("no such pair", 404)
        return JSONResponse(await run_in_threadpool(_turn_view, session, taken))

    routes = [Route(f"/{name}", file, methods=["GET"]) for name in _FILES]
    routes += [
        Route("/turn", turn, methods=["GET"]),
        Route("/image/{id}/{number:int}", image, methods=["GET"]),
        Route("/verdict", verdict, methods=["POST"]),
    ]
    app: Starlette = applications.Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(_Guard, token=token, port=port)],
    )
    return app


class _Guard:
    """Lets in what the page itself sends, and forbids the page all that it does not need."""

    def __init__(self, app: App, *, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in (_HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, guarded)
            return
        status, reason = refusal
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"allow", b"GET, POST")]
        await guarded({"type": "http.response.start", "status": status, "headers": headers})
        await guarded({"type": "http.response.body", "body": reason.encode()})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason of what is not let in."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host, origin = headers.get(b"host", b""), headers.get(b"origin")
        is_post = scope["method"] == "POST"
        # another name of this machine is how a page elsewhere would reach this one
        if host not in self._hosts:
            return 403, "wrong host"
        if origin != b"http://" + host and (is_post or origin is not None):
            return 403, "wrong origin"
        is_elsewhere = headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
        if is_elsewhere and headers.get(b"sec-fetch-mode") != b"navigate":
            return 403, "wrong origin"
        given = scope["path"].partition("/")[2].partition("/")[0].encode()  # a path may be "*"
        if not secrets.compare_digest(given, self._token):
            return 404, "not found"
        if scope["method"] not in ("GET", "POST"):
            return 405, "only GET and POST"
        if is_post:
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind != b"application/json":
                return 415, "only application/json"
        return None


def _verdict(body: bytes) -> tuple[str, str, str]:
    """Id, key and note of what the page sends."""
    said = json.loads(body)
    if not isinstance(said, dict) or set(said) - {"note"} != {"id", "key"}:
        raise ValueError("a verdict must have an id and a key, and may have a note")
    id_, key, note = said["id"], said["key"], said.get("note", "")
    if not isinstance(id_, str) or not re.fullmatch("[0-9a-f]{64}", id_):
        raise ValueError("the id must be a digest")
    if key not in ("y", "n", "s", "u"):
        raise ValueError("the key must be one of y, n, s, u")
    if not isinstance(note, str) or len(note) > _LONGEST_NOTE:
        raise ValueError(f"the note must be a text of at most {_LONGEST_NOTE} characters")
    note.encode()  # half of a pair of surrogates is no text
    return id_, key, note


def _tab(request: "Request") -> str:
    return request.query_params.get("tab", "")[:64]


def _turn_view(session: JudgingSession, turn: Turn) -> dict[str, object]:
    """What the page shows, as JSON values."""
    return turn._asdict() | {
        "question": visible(session.judge.question),
        "judged_by": visible(session.judged_by),
        "pair": None if turn.pair is None else pair_view(turn.pair),
        "conclusion": visible(turn.conclusion),
        "notice": visible(turn.notice),
    }


def _needed(name: str) -> ModuleType:
    """A module of the packages that the page is served with."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            "judging in the browser needs starlette and uvicorn: pip install 'sklearn-clm[judge]'"
        ) from error
