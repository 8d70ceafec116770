"""Sign-in form for browsers, which sets a cookie.

Scripts cannot read the cookie, other sites cannot send it, and it is valid for pages only: requests
that change something need the token in a header, which no browser adds by itself. It is not the
token itself, because browsers send it to every port of the host, also to other servers.
"""

from __future__ import annotations

from urllib.parse import parse_qs, quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from zeus.drawing._markup import Content, join, tag
from zeus.drawing._pages import note
from zeus.server.pages._layout import HEADERS, is_page, notice, respond, site_of
from zeus.store._tokens import page_pass
from zeus.transport._local_token import FILE

COOKIE = "zeus_pages"
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
_ARENA = "/arena/"  # votes are posted by forms; `AuthMiddleware` refuses those of other sites
_LONGEST = 4_000  # characters of a form


def cookie_pass(scope: Scope, headers: dict[bytes, bytes]) -> bytes | None:
    """Return the pass in the cookie of a request for a page, else `None`."""
    posted = scope["method"] == "POST" and scope["path"].startswith(_ARENA)
    read = scope["method"] in ("GET", "HEAD") and is_page(scope["path"])
    if not posted and not read:
        return None
    for part in headers.get(b"cookie", b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE.encode() and value:
            return value
    return None


def to_sign_in(scope: Scope) -> Response:
    """Redirect to the form, which then redirects to the requested page."""
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = quote(scope["path"]) + (f"?{query}" if query else "")
    return _redirect(f"{SIGN_IN}?next={quote(wanted, safe='')}")


def show(request: Request) -> Response:
    """Return the sign-in page."""
    if request.app.state.doorkeeper is None:
        return _redirect(site_of(request).home.path)
    return _form(request, _inside(request, request.query_params.get("next", "")))


async def enter(request: Request) -> Response:
    """Check the token or code, and set the cookie if it is valid."""
    doorkeeper = request.app.state.doorkeeper
    if doorkeeper is None:
        return _redirect(site_of(request).home.path)
    body = await request.body()
    if len(body) > _LONGEST:
        raise HTTPException(413, "the form is too large")
    fields = parse_qs(body.decode("ascii", "replace"))
    token, code, wanted = (fields.get(name, [""])[0].strip() for name in ("token", "code", "next"))
    wanted = _inside(request, wanted)
    if code:
        sign_in = request.app.state.sign_in
        token = (sign_in.take(code) if sign_in is not None else None) or ""
        if not token:
            return _form(request, wanted, "This link has already been used or has expired.")
    known = await doorkeeper.admit(b"Bearer " + token.encode()) if token.isascii() else None
    if known is None:
        return _form(request, wanted, "This token is invalid, expired or revoked.")
    answer = _redirect(wanted)
    answer.set_cookie(
        COOKIE,
        page_pass(known, token),
        path="/",
        httponly=True,
        samesite="strict",
        secure=_is_secure(request),
    )
    return answer


def leave(request: Request) -> Response:
    """Sign out: delete the cookie."""
    answer = _redirect(
        site_of(request).home.path if request.app.state.doorkeeper is None else SIGN_IN
    )
    answer.delete_cookie(
        COOKIE, path="/", httponly=True, samesite="strict", secure=_is_secure(request)
    )
    return answer


def _form(request: Request, wanted: str, trouble: str = "") -> Response:
    content = tag(
        "form",
        tag("h1", "Sign in"),
        notice(trouble, kind="bad") if trouble else None,
        tag("label", "Token", for_="token"),
        tag(
            "input",
            type="password",
            name="token",
            id="token",
            required=True,
            autofocus=True,
            autocomplete="current-password",
            autocapitalize="none",
            spellcheck="false",
            placeholder="zeus_…",
        ),
        tag("input", type="hidden", name="code"),  # filled by the script, from a link
        tag("input", type="hidden", name="next", value=wanted),
        tag("button", "Sign in", class_="main"),
        note(
            "The operator of this server creates one with ",
            tag("code", "zeus token create"),
            _where_it_is(request),
            ". This browser stays signed in until you sign out or close it.",
        ),
        method="post",
        action=SIGN_IN,
        class_="card",
        id="sign-in",
    )
    return respond(request, "Sign in", content, status=401 if trouble else 200)


def _where_it_is(request: Request) -> Content:
    if request.app.state.sign_in is None:
        return None
    file = tag("code", FILE)
    return join("; the operator's own is in the file ", file, " of the state directory")


def _inside(request: Request, wanted: str) -> str:
    """Return the path if it is a page of this server, else the home page."""
    good = wanted.startswith("/") and not wanted.startswith("//") and wanted.isascii()
    good = good and wanted.isprintable() and "\\" not in wanted and " " not in wanted
    return wanted if good and is_page(wanted.partition("?")[0]) else site_of(request).home.path


def _is_secure(request: Request) -> bool:
    """Return whether the browser uses TLS, perhaps to a proxy in front."""
    told = request.headers.get("origin", "").split(":")[0]
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"), told)


def _redirect(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303, {**HEADERS})
