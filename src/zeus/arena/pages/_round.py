"""The pages of a round: ask, read two answers, vote, see the energy, unveil the names.

Before the vote nothing here depends on which model is on which side.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from zeus.arena._api import ask as begin
from zeus.arena._api import check_scope, frames
from zeus.arena._arena import MAX_PROMPT, Arena
from zeus.arena._events import JUDGEMENTS, VOTES
from zeus.arena.pages._units import energy_text
from zeus.drawing._markup import Content, Markup, join, tag
from zeus.server.pages._layout import HEADERS, heading, notice, respond
from zeus.server.pages._units import digits, seconds

_AT = "/arena"
_MAX_FORM = 64 * 1024  # bytes
_SIDES = (("left", "Model A"), ("right", "Model B"))
_NAMES = dict(_SIDES)
_VOTES = (
    ("left", "A is better"),
    ("right", "B is better"),
    ("tie", "Both alike"),
    ("bad", "Both bad"),
)
_RULES = (
    "Two anonymous models answer your prompt.",
    "You vote for the better answer.",
    "Then you see how much energy each of them took, and say whether the better one was worth it.",
    "Only then you see the models' names.",
)


def show_form(request: Request) -> Response:
    """Return the page to ask a prompt."""
    check_scope(request)
    arena: Arena = request.app.state.arena
    models = (tag("option", name, value=name) for name in arena.models)
    kept = "are stored" if arena.settings.keep_texts else "are not stored"
    form = tag(
        "form",
        tag("label", "Your prompt", for_="prompt"),
        tag(
            "textarea",
            name="prompt",
            id="prompt",
            rows=4,
            required=True,
            maxlength=MAX_PROMPT,
            autofocus=True,
            aria_describedby="prompt-help",
            placeholder="What would you like to ask both of them?",
        ),
        tag(
            "p",
            f"Prompts and answers {kept} with the votes. Ctrl+Enter sends it.",
            id="prompt-help",
            class_="about",
        ),
        tag(
            "div",
            tag(
                "label",
                "Prefer a model? ",
                tag("select", tag("option", "Two random models", value=""), *models, name="model"),
            ),
            tag("button", "Ask both", class_="main"),
            class_="send",
        ),
        method="post",
        action="/arena/rounds",
        class_="ask",
        id="ask",
    )
    rules = tag("ol", *(tag("li", rule) for rule in _RULES), class_="rules")
    content = join(
        heading("Arena", "Which answer is better, and is it worth its energy?"), rules, form
    )
    return respond(request, "Arena", content, at=_AT)


async def ask(request: Request) -> Response:
    """Begin a round, and go to its page."""
    fields = await _form(request)
    name = await begin(request, fields.get("prompt", ""), fields.get("model", ""))
    return _to(name)


async def show(request: Request) -> Response:
    """Return the page of a round."""
    check_scope(request)
    view = await request.app.state.arena.view(request.path_params["name"])
    return respond(request, "Round", _content(view), at=_AT)


async def stream(request: Request) -> Response:
    """Return both answers, in step."""
    return await frames(request, request.path_params["name"])


async def vote(request: Request) -> Response:
    """Take a vote, and go back to the round."""
    check_scope(request)
    fields = await _form(request)
    name = request.path_params["name"]
    await request.app.state.arena.vote(name, _one_of(fields, "vote", VOTES))
    return _to(name)


async def judge(request: Request) -> Response:
    """Take the answer to the second question, and go back to the round."""
    check_scope(request)
    fields = await _form(request)
    name = request.path_params["name"]
    await request.app.state.arena.judge(name, _one_of(fields, "judgement", JUDGEMENTS))
    return _to(name)


def _to(name: str) -> Response:
    return RedirectResponse(f"/arena/rounds/{name}", 303, {**HEADERS})


async def _form(request: Request) -> dict[str, str]:
    body = await request.body()
    if len(body) > _MAX_FORM:
        raise HTTPException(413, f"a form must have at most {_MAX_FORM} bytes, but got {len(body)}")
    found = parse_qs(body.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=20)
    return {name: values[0] for name, values in found.items()}


def _one_of(fields: dict[str, str], name: str, words: tuple[str, ...]) -> str:
    value = fields.get(name, "")
    if value not in words:
        known = ", ".join(words)
        raise HTTPException(422, f"`{name}` must be one of {known}, but got {value!a:.80}")
    return value


# --- content ------------------------------------------------------------------------------------


def _content(view: dict[str, Any]) -> Markup:
    state = view["state"]
    return join(
        heading(_TITLES[state]),
        tag("blockquote", _lines(view["prompt"]), class_="prompt", aria_label="Your prompt")
        if view["prompt"]
        else None,
        _answers(view) if state not in ("ended", "expired") else None,
        _STEPS[state](view),
    )


_TITLES = {
    "running": "Two answers",
    "answered": "Which answer is better?",
    "voted": "Was it worth it?",
    "judged": "The models",
    "ended": "This round has ended",
    "expired": "This round has ended",
}


def _answers(view: dict[str, Any]) -> Markup:
    name = view["round"]
    streams = view["state"] == "running"
    panes = (_pane(view, side, title) for side, title in _SIDES)
    return tag(
        "div",
        *panes,
        class_="duel",
        id="duel",
        data_stream=f"/arena/rounds/{name}/stream" if streams else None,
        aria_busy="true" if streams else None,
    )


def _pane(view: dict[str, Any], side: str, title: str) -> Markup:
    answer = (view.get("answers") or {}).get(side, {})
    model = answer.get("model")
    won = view.get("vote") == side
    label = join(title, tag("span", " · ", model, class_="model") if model else None)
    badge = tag("span", "your vote", class_="badge") if won else None
    return tag(
        "section",
        tag("h2", label, badge, id=f"{side}-title"),
        tag(
            "div",
            _lines(answer.get("text", "")),
            class_="answer",
            id=f"{side}-answer",
            tabindex=0,
            role="region",
            aria_label=f"Answer of {title}",
        ),
        _energy(view, answer),
        class_="pane chosen" if won else "pane",
        id=side,
        aria_labelledby=f"{side}-title",
    )


def _lines(text: str) -> Markup:
    """Return text with its line breaks, which `tag` would drop."""
    return join(*text.split("\n"), between=tag("br"))


def _energy(view: dict[str, Any], answer: dict[str, Any]) -> Markup:
    if "vote" not in view:
        # The same on both sides: a meter that runs, without a value.
        bar = tag("span", class_="meter", aria_hidden="true")
        return tag("p", "Energy ", bar, tag("span", "hidden until your vote"), class_="energy")
    energy = answer.get("energy")
    if energy is None:
        return tag("p", "Energy: ", tag("strong", "unknown"), class_="energy")
    parts: list[Content] = [
        "Energy: ",
        tag("strong", energy_text(energy["joules"], energy["uncertainty"])),
    ]
    tokens = answer.get("generated_tokens")
    if tokens:
        parts.append(f" for {tokens} tokens ({energy_text(energy['joules'] / tokens)} per token)")
    if energy["method"]:
        parts.append(tag("span", ", ", energy["method"], class_="why"))
    if energy["simulated"] and "simulated" not in energy["method"].lower():
        parts.append(tag("span", ", simulated", class_="why"))
    return tag("p", *parts, class_="energy")


def _vote(view: dict[str, Any]) -> Markup:
    running = view["state"] == "running"
    buttons = (
        tag(
            "button",
            tag("kbd", number, aria_hidden="true"),
            text,
            name="vote",
            value=value,
            data_key=number,
            disabled=running,
        )
        for number, (value, text) in enumerate(_VOTES, 1)
    )
    return join(
        tag("p", "Both models are answering.", id="progress", role="status", class_="about")
        if running
        else tag("p", id="progress", role="status", class_="about"),
        tag(
            "form",
            tag("fieldset", tag("legend", "Which answer is better?"), *buttons),
            method="post",
            action=f"/arena/rounds/{view['round']}/vote",
            class_="vote",
            id="vote",
            hidden=running,
        ),
        tag("noscript", notice("Answers are shown by a script, which this browser does not run."))
        if running
        else None,
    )


def _judgement(view: dict[str, Any]) -> Markup:
    text, buttons = _question(view)
    made = (
        tag(
            "button",
            tag("kbd", key, aria_hidden="true"),
            label,
            name="judgement",
            value=value,
            data_key=key,
        )
        for key, value, label in buttons
    )
    return tag(
        "form",
        tag("fieldset", tag("legend", text), *made),
        method="post",
        action=f"/arena/rounds/{view['round']}/judgement",
        class_="vote",
        id="judge",
    )


def _question(view: dict[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the second question, and key, value and label of its answers."""
    unveil = [("1", "none", "Unveil the names")]
    energies = [view["answers"][side]["energy"] for side, _ in _SIDES]
    if any(each is None for each in energies):
        return "The energy of an answer is unknown, so there is nothing to weigh.", unveil
    more, less = sorted((each["joules"] for each in energies), reverse=True)
    factor = f"{digits(more / less, 2)} times" if less > 0 else "all"
    title = _NAMES.get(view["costlier"], "")
    if view["question"] == "worth":
        said = f"{title}, the better one for you, took {factor} the energy. Was it worth it?"
        return said, [("1", "yes", "Yes, worth it"), ("2", "no", "No, I would take the other one")]
    if view["question"] == "cheaper":
        said = f"{title} took {factor} the energy. Do you prefer the other one now?"
        return said, [("1", "yes", "Yes, the one with less energy"), ("2", "no", "No, both alike")]
    if not title:
        return "Both took the same energy, as far as it is known.", unveil
    if view["vote"] in _NAMES:
        return "The better answer took less energy, too.", unveil
    return f"{title} took {factor} the energy.", unveil


def _names(view: dict[str, Any]) -> Markup:
    rows = []
    for side, title in _SIDES:
        answer = view["answers"][side]
        time = f", first token after {seconds(answer['ttft'])}, complete after "
        rows.append(
            tag(
                "li",
                title,
                " was ",
                tag("strong", answer["model"]),
                time,
                seconds(answer["seconds"]),
            )
        )
    again = tag("a", "Ask again", class_="button main", href="/arena", data_key="1")
    board = tag("a", "See the board", class_="button", href="/board", data_key="2")
    return join(
        tag("ul", *rows, class_="unveiled"),
        tag("p", again, " ", board, class_="next"),
    )


def _over(view: dict[str, Any]) -> Markup:
    said = (
        "A model did not complete its answer, or the page was left. The round does not count, and "
        "no names are shown."
        if view["state"] == "ended"
        else "The time for a vote is over. The round does not count."
    )
    again = tag("a", "Ask again", class_="button main", href="/arena", data_key="1")
    return join(notice(said), tag("p", again, class_="next"))


_STEPS = {
    "running": _vote,
    "answered": _vote,
    "voted": _judgement,
    "judged": _names,
    "ended": _over,
    "expired": _over,
}
