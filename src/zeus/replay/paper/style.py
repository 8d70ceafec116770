"""How all figures look: colours, fonts, and the same bytes for the same data.

Colours are those of Okabe and Ito, which are told apart with any kind of colour vision; what
matters also differs in shape, hatching or place.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zeus.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1c2733", "#5f6a78", "#e4e8ed", "#ffffff"
BLUE, SKY, GREEN = "#0072b2", "#56b4e9", "#009e73"
ORANGE, VERMILION, PURPLE, GREY = "#e69f00", "#d55e00", "#cc79a7", "#98a2ae"

#: Name, colour, marker and hatching of each policy, the same in every figure.
POLICIES = {
    "default": ("Default", GREY, "s", ""),
    "grid": ("Grid search", ORANGE, "^", "///"),
    "paper": ("Zeus as published", BLUE, "o", ""),
    "zeus": ("Zeus today", VERMILION, "D", "\\\\\\"),
}
WORKLOADS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")

_NARROW = {
    "DeepSpeech2": "Deep-\nSpeech2",
    "ResNet-50": "ResNet-\n50",
    "ShuffleNet-v2": "Shuffle-\nNet-v2",
}
_DOTS = 150  # per inch
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#aab3be",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.facecolor": PAPER,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that all machines draw the same
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.color": PAPER,
    "hatch.linewidth": 0.8,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "zeus",  # names inside the file, else random
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw in this style, without changing how the caller's own figures look.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("drawing the figures of the paper", "plot") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the machine's own configuration says
        for name, value in _STYLE.items():
            matplotlib.rcParams[name] = value
        yield


def panels(
    rows: int = 1, columns: int = 1, *, width: float = 7.6, height: float = 4.2, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row.

    Args:
        rows: Of panels.
        columns: Of panels.
        width: Inches of the whole.
        height: Inches of the whole.
        options: Of matplotlib's `subplots`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # knows how wide a text is
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(grid.flat)


def encoded(figure: Figure) -> tuple[bytes, bytes]:
    """The figure as PNG and as SVG, without anything that differs between two runs."""
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=_DOTS, metadata={"Software": "Zeus"})
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "Zeus"})
    return png.getvalue(), svg.getvalue()


def legend_below(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """One legend for the whole figure, below it."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def percent_axis(axis: Any, digits: int = 0) -> None:
    """Shares as percentages."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:.{digits}f} %")


def plain_log(axis: Any, decades: float = 1.0) -> None:
    """Numbers instead of powers, on an axis with a logarithmic scale.

    Args:
        axis: Of a panel.
        decades: How many powers of ten it spans.
    """
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415

    steps = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
    axis.set_major_locator(LogLocator(10, subs=steps, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def narrow(name: str) -> str:
    """A name in two short lines, for where many stand side by side."""
    return _NARROW.get(name, name.replace(" ", "\n", 1))


def batch_size_axis(axes: Axes, sizes: Sequence[int], which: str = "y") -> None:
    """Batch sizes, each as far from the next as any other."""
    places, names = range(len(sizes)), [str(size) for size in sizes]
    if which == "y":
        axes.set_yticks(places, names)
        axes.set_ylim(-0.6, len(sizes) - 0.4)
        axes.set_ylabel("Batch size")
    else:
        axes.set_xticks(places, names, rotation=90 if len(sizes) > 9 else 0)
        axes.set_xlim(-0.6, len(sizes) - 0.4)
        axes.set_xlabel("Batch size")


def scale(largest: float, steps: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit in which a value is at least 1, such as MJ for 2,000,000 J."""
    for size, name in steps:
        if largest >= size:
            return size, name
    return steps[-1]


JOULES = ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"))
SECONDS = ((7200.0, "h"), (120.0, "min"), (1.0, "s"))
HOURS = {"h": 3600.0, "min": 60.0, "s": 1.0}


def time_unit(largest: float) -> tuple[float, str]:
    """Seconds of a unit that suits values up to this one, and its name."""
    _, name = scale(largest, SECONDS)
    return HOURS[name], name


def energy_unit(largest: float) -> tuple[float, str]:
    """Joules of a unit that suits values up to this one, and its name."""
    return scale(largest, JOULES)


def label_points(
    axes: Axes,
    places: Sequence[tuple[float, float]],
    names: Sequence[str],
    others: Sequence[tuple[float, float]] = (),
) -> None:
    """Write names beside points so that none covers another or a point, nor one of the others.

    Call it last: it depends on the axes' limits. Where nothing is free the name is left out; what
    it says is in the figure's data.
    """
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    figure: Any = axes.figure
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    room = axes.get_window_extent(renderer)
    dots = figure.dpi / 72
    points = [axes.transData.transform(place) for place in (*places, *others)]
    taken: list[Any] = []
    ways = [
        (
            distance * across,
            distance * up,
            "left" if across > 0 else "right" if across else "center",
        )
        for distance in (7, 12, 18, 26, 36)
        for across, up in ((1, 1), (1, 0), (-1, -1), (0, 1.3), (-1, 0), (0, -1.6), (1, -1), (-1, 1))
    ]
    halo = [withStroke(linewidth=2.5, foreground=PAPER)]  # over grid lines
    for place, name in zip(places, names, strict=True):
        for right, up, side in ways:
            text = axes.annotate(
                name, place, xytext=(right, up), textcoords="offset points", fontsize=8.5,
                ha=side, va="center", color=INK, annotation_clip=True, path_effects=halo,
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkB": 3}
                if abs(right) + abs(up) > 24 else None,
            )  # fmt: skip
            box = text.get_window_extent(renderer).padded(1.0)
            inside = (
                box.x0 >= room.x0 and box.x1 <= room.x1 + 8 * dots
                and box.y0 >= room.y0 and box.y1 <= room.y1 + 4 * dots
            )  # fmt: skip
            free = not any(box.overlaps(other) for other in taken)
            clear = not any(box.padded(2 * dots).contains(float(x), float(y)) for x, y in points)
            if inside and free and clear:
                taken.append(box)
                break
            text.remove()
