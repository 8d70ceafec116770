"""The JSON API of the arena: rounds, votes and the board."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from zeus.arena._arena import MAX_PROMPT, Arena, BusyError
from zeus.arena._pacing import FRAME_BYTES
from zeus.arena._rows import to_dict
from zeus.errors import BackendError
from zeus.server._responses import ALWAYS, ALWAYS_OF_TEXT, FaultBody, documented
from zeus.server.pages._layout import HEADERS

router = APIRouter(responses=ALWAYS)
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_BUSY: dict[int | str, dict[str, Any]] = {
    429: {"model": FaultBody, "description": "Too many prompts; Retry-After says when to ask."}
}


class PromptBody(BaseModel):
    """A prompt.

    Attributes:
        prompt: The prompt.
        model: A model that takes part; empty for two random ones.
    """

    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT)]
    model: Annotated[str, Field(max_length=100)] = ""


class VoteBody(BaseModel):
    """A vote: the better side, both alike, or both bad."""

    vote: Literal["left", "right", "tie", "bad"]


class JudgementBody(BaseModel):
    """An answer to the second question; "none" if there is nothing to ask."""

    judgement: Literal["yes", "no", "none"]


class RoundName(BaseModel):
    """The name of a round."""

    round: str


class SideView(BaseModel):
    """An answer, as far as it may be seen."""

    text: str
    energy: dict[str, Any] | None = None
    generated_tokens: int | None = None
    model: str | None = None
    ttft: float | None = None
    seconds: float | None = None


class RoundView(BaseModel):
    """A round, as far as it may be seen."""

    round: str
    state: str
    prompt: str
    answers: dict[str, SideView] | None = None
    vote: str | None = None
    question: str | None = None
    costlier: str | None = None
    judgement: str | None = None


class BoardView(BaseModel):
    """All rows of the board."""

    rows: list[dict[str, Any]]


async def ask(request: Request, prompt: str, model: str) -> str:
    """Begin a round; refusals become HTTP errors."""
    check_scope(request)
    arena: Arena = request.app.state.arena
    address = request.client.host if request.client else ""
    try:
        return await arena.ask(prompt, client=address, prefer=model)
    except BusyError as error:
        after = str(max(1, round(error.seconds + 0.5)))
        raise HTTPException(429, str(error), {"Retry-After": after}) from None
    except BackendError:
        raise HTTPException(503, "a model of the arena is not reachable for now") from None


def check_scope(request: Request) -> None:
    """Refuse tokens that are for one job only."""
    if getattr(request.state, "scope", None) is not None:
        raise HTTPException(403, "this token is for one job, not for the arena")


async def frames(request: Request, name: str) -> Response:
    """Return the stream of a round."""
    check_scope(request)
    arena: Arena = request.app.state.arena
    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(
        await arena.read(name), headers=headers, media_type="application/x-ndjson"
    )


@router.post("/api/rounds", status_code=201, responses={**documented(400, 413, 422), **_BUSY})
async def begin_round(request: Request, body: PromptBody) -> RoundName:
    """Ask two models; read their answers from the stream of the round."""
    return RoundName(round=await ask(request, body.prompt, body.model))


@router.get(
    "/api/rounds/{name}",
    responses=documented(404, 422),
    response_model_exclude_none=True,
)
async def show_round(request: Request, name: Name) -> RoundView:
    """Show a round: energies after the vote, names after the second question."""
    check_scope(request)
    return RoundView(**await request.app.state.arena.view(name))


@router.get(
    "/api/rounds/{name}/stream",
    response_class=StreamingResponse,
    responses={
        **ALWAYS_OF_TEXT,
        200: {"content": {"application/x-ndjson": {}}, "description": "Frames of equal size."},
        **{
            code: {"description": each["description"], "content": {"application/json": {}}}
            for code, each in documented(404, 422).items()
        },
    },
    description=f"Both answers in step: lines of JSON of {FRAME_BYTES} bytes, at a fixed rate.",
)
async def stream_round(request: Request, name: Name) -> Response:
    return await frames(request, name)


@router.post(
    "/api/rounds/{name}/vote",
    responses=documented(400, 404, 409, 413, 422),
    response_model_exclude_none=True,
)
async def vote(request: Request, name: Name, body: VoteBody) -> RoundView:
    """Vote, once; the same vote again changes nothing."""
    check_scope(request)
    arena: Arena = request.app.state.arena
    await arena.vote(name, body.vote)
    return RoundView(**await arena.view(name))


@router.post(
    "/api/rounds/{name}/judgement",
    responses=documented(400, 404, 409, 413, 422),
    response_model_exclude_none=True,
)
async def judge(request: Request, name: Name, body: JudgementBody) -> RoundView:
    """Answer the second question, once; unveils the names."""
    check_scope(request)
    arena: Arena = request.app.state.arena
    await arena.judge(name, body.judgement)
    return RoundView(**await arena.view(name))


@router.get("/api/board")
async def board(request: Request) -> BoardView:
    """Return all rows of the board."""
    check_scope(request)
    found = await run_sync(request.app.state.board.read)
    return BoardView(rows=[to_dict(row) for row in found.rows])


@router.get("/healthz", response_class=PlainTextResponse, responses=ALWAYS_OF_TEXT)
async def health(request: Request) -> Response:
    """Check that the store can be read."""
    await run_sync(request.app.state.arena.storage.version)
    return PlainTextResponse("ok\n")
