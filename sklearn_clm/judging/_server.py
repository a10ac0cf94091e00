"""The web server of the judging page, for this machine.

Whoever has the address may judge, so it holds a random token. What other pages of the browser
could send is refused by its Host and Origin, and the page itself may load and run nothing but the
files beside this module.
"""

import contextlib
import secrets
import socket
from importlib import resources
from numbers import Integral
from typing import TYPE_CHECKING

from sklearn.utils import check_scalar

from sklearn_clm._exceptions import optional_module
from sklearn_clm.caching import HumanJudge
from sklearn_clm.judging._session import JudgingSession, Turn, Wanted
from sklearn_clm.judging._view import images, pair_view, png, visible

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.middleware.base import RequestResponseEndpoint
    from starlette.requests import Request

_HOST = "127.0.0.1"
_LONGEST_NOTE = 300
_FILES = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "server.js": ("server.js", "text/javascript"),
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
    """Serve the page on which people judge, until interrupted.

    The address, printed at the start, holds a random token and works on this machine alone. Each
    verdict is on the disk before the next pair is shown.

    Parameters
    ----------
    judge : HumanJudge
        Keeps the verdicts.
    wanted : sequence of WantedVerdict or callable, default=()
        The pairs; or a function that raises :class:`sklearn_clm.caching.VerdictsWanted` as long
        as it wants verdicts, such as one that runs a calibration. It is called again whenever all
        that it wanted is judged. What it returns in the end is shown as text. Where people audit
        a model, its verdicts are never shown: who knew them would agree too often. Each person is
        given the prompts in an order of their own, the responses of a prompt one after the other.
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
    check_scalar(port, "port", Integral, min_val=0, max_val=65535)
    uvicorn = optional_module("uvicorn", "judge", "judging in the browser")

    session = JudgingSession(judge, wanted, judged_by=judged_by)
    # other users of this machine reach its ports, too: whoever has no token finds nothing
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

    Notes
    -----
    Programs may press the keys: under the token, GET ``turn`` gives the pair that is shown as JSON,
    and POST ``verdict`` takes ``{"id": ..., "key": "y", "note": ""}`` and gives the next one, with
    the headers ``Origin``, the address of the page, and ``Content-Type: application/json``.
    """
    applications = optional_module("starlette.applications", "judge", "judging in the browser")
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Mount, Route

    folder = resources.files("sklearn_clm.judging")
    # a page elsewhere can make a browser send requests here, but under another name of the host
    hosts = {f"{name}:{port}" for name in (_HOST, "localhost")}

    def file(request: "Request") -> Response:
        name, kind = _FILES[request.url.path.rpartition("/")[2]]
        return Response(folder.joinpath(name).read_bytes(), media_type=kind)

    # plain functions run in threads: a look into the file may wait for a lock
    def turn(request: "Request") -> Response:
        return JSONResponse(_turn_view(session, session.turn()))

    def image(request: "Request") -> Response:
        pair = session.pair(request.path_params["id"])
        # compared as text: Python refuses to read a number of thousands of digits
        pictures = {
            str(k): content for k, content in enumerate([] if pair is None else images(pair))
        }
        picture = pictures.get(request.path_params["number"])
        if picture is None:
            return PlainTextResponse("no such image", 404)
        return Response(png(picture), media_type="image/png")

    async def verdict(request: "Request") -> Response:
        try:
            message = await request.json()
            note = str(message.get("note", ""))[:_LONGEST_NOTE]
            # the next turn may start a calibration, which takes long
            next_turn = await run_in_threadpool(session.act, message["id"], message["key"], note)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return PlainTextResponse("not a verdict on a pair that is known", 400)
        return JSONResponse(await run_in_threadpool(_turn_view, session, next_turn))

    async def guarded(request: "Request", follow: "RequestResponseEndpoint") -> Response:
        reason = _refusal(request, hosts)
        answer = await follow(request) if reason is None else PlainTextResponse(reason, 403)
        answer.headers.update(_HEADERS)
        return answer

    routes = [Route(f"/{name}", file, methods=["GET"]) for name in _FILES]
    routes += [
        Route("/turn", turn, methods=["GET"]),
        Route("/image/{id}/{number}", image, methods=["GET"]),
        Route("/verdict", verdict, methods=["POST"]),
    ]
    app: Starlette = applications.Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)],
    )
    return app


def _refusal(request: "Request", hosts: set[str]) -> str | None:
    """Why a request is refused, if it is."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    # another name of this machine is how a page elsewhere would reach this one
    if host not in hosts:
        return "wrong host"
    if origin != f"http://{host}" and (request.method == "POST" or origin is not None):
        return "wrong origin"
    if request.method == "POST" and request.headers.get("content-type") != "application/json":
        return "only application/json"
    return None


def _turn_view(session: JudgingSession, turn: Turn) -> dict[str, object]:
    """What the page shows, as JSON values."""
    return turn._asdict() | {
        "question": visible(session.judge.question),
        "judged_by": visible(session.judged_by),
        "pair": None if turn.pair is None else pair_view(turn.pair),
        "conclusion": visible(turn.conclusion),
        "notice": visible(turn.notice),
    }
