"""The board: all rows in a table that can be filtered, sorted and exported, and two pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from zeus.arena._api import check_scope
from zeus.arena._bradley_terry import WinRate
from zeus.arena._rows import BENCH, IMPORT, ROUNDS, BoardRow, Estimate
from zeus.arena._standings_cache import Board
from zeus.arena.pages._charts import KINDS, latency_chart, latency_points, win_chart, win_points
from zeus.arena.pages._selection import DESCENDING, Selection
from zeus.arena.pages._units import energy_text, unit_of
from zeus.drawing._captions import Sample
from zeus.drawing._markup import Content, Markup, join, tag
from zeus.drawing._table import Column, table
from zeus.server.pages._layout import aside, heading, notice, pager, respond, section
from zeus.server.pages._plotting import WIDE, figure
from zeus.server.pages._units import NONE, counted, digits, grouped, seconds

_AT = "/board"
_ROWS = 25  # of a page
NAMES = {ROUNDS: "own rounds", BENCH: "load test", IMPORT: "imported"}


def show(request: Request) -> Response:
    """Return the board."""
    check_scope(request)
    board: Board = request.app.state.board.read()
    selection = Selection.of(request.query_params)
    chosen = selection.apply(board.rows)
    about = f"{counted(len(board.rows), 'row')}, {counted(board.votes, 'vote')}"
    content = join(
        heading("Board", f"Energy, latency and votes of models: {about}."),
        _damage(board),
        _filters(selection, board.rows),
        _table(selection, chosen) if chosen else _empty(board),
        *_pictures(chosen),
        _explanation() if chosen else None,
    )
    return respond(request, "Board", content, at=_AT)


def _damage(board: Board) -> Markup | None:
    if not board.damaged:
        return None
    what = counted(board.damaged, "round or row", "rounds or rows")
    return notice(f"{what} in the store cannot be read and are left out; see the log.", kind="bad")


def _empty(board: Board) -> Markup:
    if board.rows:
        return notice("No row matches these filters.")
    return notice(
        "There is nothing yet. ",
        tag("a", "Ask both", href="/arena"),
        " a prompt, measure a server with ",
        tag("code", "zeus bench-serving"),
        ", or import results with ",
        tag("code", "zeus board import"),
        ".",
    )


def _filters(selection: Selection, rows: Sequence[BoardRow]) -> Markup:
    gpus = sorted({row.gpu for row in rows if row.gpu})
    tasks = sorted({row.task for row in rows if row.task})
    return tag(
        "form",
        tag(
            "input",
            type="search",
            name="text",
            value=selection.text,
            placeholder="Model",
            aria_label="Part of a model's name",
        ),
        _select("source", "All sources", NAMES.items(), selection.source),
        _select("gpu", "All GPUs", ((gpu, gpu) for gpu in gpus), selection.gpu) if gpus else None,
        _select("task", "All tasks", ((each, each) for each in tasks), selection.task)
        if tasks
        else None,
        tag("input", type="hidden", name="sort", value=selection.sort),
        tag("input", type="hidden", name="reverse", value="1") if selection.reverse else None,
        tag("button", "Filter"),
        tag("a", "CSV", class_="button", href=selection.url("/board/export.csv", page=0)),
        tag("a", "JSON", class_="button", href=selection.url("/board/export.json", page=0)),
        class_="inline",
        action=_AT,
        role="search",
        aria_label="Filters",
    )


def _select(name: str, all_: str, choices: Iterable[tuple[str, str]], chosen: str) -> Markup:
    options = (
        tag("option", text, value=value, selected=value == chosen) for value, text in choices
    )
    first = tag("option", all_, value="")
    return tag("select", first, *options, name=name, aria_label=all_.removeprefix("All ").title())


def _table(selection: Selection, rows: Sequence[BoardRow]) -> Markup:
    pages = -(-len(rows) // _ROWS)
    page = min(selection.page, pages - 1)
    shown = rows[page * _ROWS : (page + 1) * _ROWS]
    has = {name: any(_CELLS[name][1](row) is not None for row in rows) for name in _CELLS}
    columns = [_column(selection, name) for name in _CELLS if has[name]]
    links = [
        ("← Previous", selection.url(page=page - 1) if page else None),
        (f"{page + 1} of {pages}", None),
        ("Next →", selection.url(page=page + 1) if page + 1 < pages else None),
    ]
    return join(
        tag("div", table("Models", columns, shown), id="rows"),
        pager("Pages", links) if pages > 1 else None,
    )


def _column(selection: Selection, name: str) -> Column[BoardRow]:
    title, cell = _CELLS[name]
    current = selection.sort == name
    order = ""
    if current:
        order = "descending" if (name in DESCENDING) != selection.reverse else "ascending"
    url = selection.url(sort=name, reverse=current and not selection.reverse, page=0)
    number = name not in ("model", "source")

    def shown(row: BoardRow) -> Content:
        value = cell(row)
        return NONE if value is None else value

    optional = name == "source"
    return Column(tag("a", title, href=url), shown, f"by-{name}", number, optional, order)


def _model(row: BoardRow) -> Content:
    setting = row.setting.replace("\u2264 ", "\u2264\u00a0")  # "batch ≤ 64" stays in one line
    below = [each for each in (row.gpu, row.task, setting) if each]
    below += ["simulated energy"] if row.simulated else []
    below += [counted(row.failures, "failure")] if row.failures else []
    return join(
        row.model, *(tag("span", each, class_="below") for each in [", ".join(below)] if each)
    )


def _energy(value: Estimate | None) -> Content:
    if value is None:
        return None
    return join(
        energy_text(value.value), _interval(value.low, value.high, unit_of(value.value).size)
    )


def _rate(value: WinRate | None) -> Content:
    if value is None:
        return None
    return join(f"{100 * value.value:.0f}\u00a0%", _interval(value.low, value.high, 0.01, 0))


def _interval(
    low: float | None, high: float | None, size: float, decimals: int | None = None
) -> Content:
    if low is None or high is None:
        return None
    ends = (
        digits(end / size, 3) if decimals is None else f"{end / size:.{decimals}f}"
        for end in (low, high)
    )
    return tag("span", "\u2009to\u2009".join(ends), class_="below")


def _worth(row: BoardRow) -> Content:
    if row.worth_it_share is None:
        return None
    share = f"{100 * row.worth_it_share:.0f}\u00a0%"
    return join(share, tag("span", f"of {row.worth_it_asked}", class_="below"))


def _time(value: float | None) -> Content:
    return None if value is None else seconds(value)


_CELLS: dict[str, tuple[str, Callable[[BoardRow], Content]]] = {
    "model": ("Model", _model),
    "source": ("Source", lambda row: NAMES[row.source]),
    "response": ("Energy per response", lambda row: _energy(row.energy_per_response)),
    "token": ("per token", lambda row: _energy(row.energy_per_token)),
    "ttft": ("First token", lambda row: _time(row.ttft)),
    "tpot": ("Time per token", lambda row: _time(row.tpot)),
    "e2e": ("Response", lambda row: _time(row.e2e)),
    "throughput": (
        "Tokens/s",
        lambda row: None if row.throughput is None else digits(row.throughput, 3),
    ),
    "win": ("Win rate", lambda row: _rate(row.win_rate)),
    "informed": ("knowing energy", lambda row: _rate(row.informed_win_rate)),
    "worth": ("Worth it", _worth),
    "responses": (
        "Responses",
        lambda row: None if row.responses is None else grouped(row.responses),
    ),
}


def _pictures(rows: Sequence[BoardRow]) -> Iterable[Markup]:
    by_latency, by_win = latency_points(rows), win_points(rows)
    if by_latency:
        yield section(
            "Energy against latency",
            figure(latency_chart(by_latency), WIDE, _legend(point.row for point in by_latency)),
            about="Lower left is better. Both axes are logarithmic.",
        )
    if by_win:
        yield section(
            "Energy against win rate",
            figure(win_chart(by_win), WIDE, _legend(point.row for point in by_win)),
            about="Lower right is better: liked more, with less energy. Lines are 95 % intervals.",
        )


def _legend(rows: Iterable[BoardRow]) -> list[tuple[Sample, str]]:
    found = {row.source for row in rows}
    return [(kind, NAMES[source]) for source, kind in KINDS.items() if source in found]


def _explanation() -> Markup:
    return tag(
        "p",
        aside(
            "Small figures are 95 % intervals. The win rate is the chance to be preferred to "
            "another model of the table, from votes by a Bradley-Terry model; “knowing energy” "
            "counts the choice after energies were shown. “Worth it” is how often a better answer "
            "was worth its higher energy. Times are medians at the server, without the pacing of "
            "the arena; those of imported rows are as published."
        ),
        class_="explanation",
    )
