"""Style of all figures: that of every picture of Zeus, with the same bytes for the same data.

Distinctions that matter are shown by shape, hatching or position as well as by color.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any

from paper.product import (
    IMAGE_FONT,
    SIDES,
    Box,
    MissingExtraError,
    colors,
    far_spots,
    first_free,
    near_spots,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, PAPER = colors.DAY["ink"], colors.DAY["muted"], colors.DAY["paper"]

#: Name, color, marker and hatching of each policy, the same in every figure.
POLICIES = {
    "default": ("Default", colors.GRAY, "s", ""),
    "grid": ("Grid search", colors.AMBER, "^", "///"),
    "paper": ("Zeus as published", colors.BLUE, "o", ""),
    "paper-repaired": ("Zeus repaired", colors.GREEN, "v", "..."),
    "zeus": ("Zeus today", colors.ORANGE, "D", "\\\\\\"),
}
WORKLOADS = (
    colors.BLUE,
    colors.AMBER,
    colors.GREEN,
    colors.ORANGE,
    colors.PURPLE,
    colors.SKY,
)
MARKERS = ("o", "s", "^", "D", "v", "P")

_NARROW = {
    "DeepSpeech2": "Deep-\nSpeech2",
    "ResNet-50": "ResNet-\n50",
    "ShuffleNet-v2": "Shuffle-\nNet-v2",
}
_DOTS = 150  # per inch
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": colors.DAY["axis"],
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
    "font.family": IMAGE_FONT,
    "font.size": 10,
    "grid.color": colors.DAY["grid"],
    "grid.linewidth": 0.8,
    "hatch.color": PAPER,
    "hatch.linewidth": 0.8,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "zeus",  # for identifiers inside the file, which are random otherwise
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
    """Use this style for drawing, without changing the style of the caller's own figures.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("drawing the figures of the paper", "plot") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # regardless of the machine's own configuration
        for name, value in _STYLE.items():
            matplotlib.rcParams[name] = value
        yield


def panels(
    rows: int = 1, columns: int = 1, *, width: float = 7.6, height: float = 4.2, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row.

    Args:
        rows: Rows of panels.
        columns: Columns of panels.
        width: Width of the figure in inches.
        height: Height of the figure in inches.
        options: Options of matplotlib's `subplots`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    if rows * columns > 1:  # else one panel's labels touch the next one's title
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=0.1, h_pad=0.1)
    FigureCanvasAgg(figure)  # needed to measure the width of texts
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(grid.flat)


def panel_for_each(
    things: Sized, *, columns: int = 3, row_height: float = 3.3, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each thing, row by row.

    Args:
        things: The things to show.
        columns: Maximum number of panels in a row.
        row_height: Height of a row in inches.
        options: Options of matplotlib's `subplots`.
    """
    columns = min(len(things), columns)
    rows = -(-len(things) // columns)
    width, height = 11 if columns > 1 else 7.6, 0.6 + row_height * rows
    figure, axes = panels(rows, columns, width=width, height=height, **options)
    for empty in axes[len(things) :]:
        empty.set_axis_off()
    return figure, axes[: len(things)]


def encoded(figure: Figure) -> tuple[bytes, bytes]:
    """Return the figure as PNG and as SVG, without anything that differs between two runs."""
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=_DOTS, metadata={"Software": "Zeus"})
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "Zeus"})
    return png.getvalue(), svg.getvalue()


def legend_below(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Draw one legend for the whole figure, below it."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def percent_axis(axis: Any, digits: int = 0) -> None:
    """Label an axis of fractions with percentages."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:.{digits}f} %")


def plain_log(axis: Any, decades: float = 1.0) -> None:
    """Label a logarithmic axis with plain numbers instead of powers of ten.

    Args:
        axis: Axis of a panel.
        decades: How many powers of ten it spans.
    """
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415

    steps = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
    axis.set_major_locator(LogLocator(10, subs=steps, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def narrow(name: str) -> str:
    """Break a name into two short lines, for axes with many labels."""
    return _NARROW.get(name, name.replace(" ", "\n", 1))


def batch_size_axis(axes: Axes, sizes: Sequence[int], which: str = "y") -> None:
    """Label an axis with batch sizes at equal distances."""
    places, names = range(len(sizes)), [str(size) for size in sizes]
    if which == "y":
        axes.set_yticks(places, names)
        axes.set_ylim(-0.6, len(sizes) - 0.4)
        axes.set_ylabel("Batch size")
    else:
        axes.set_xticks(places, names, rotation=90 if len(sizes) > 9 else 0)
        axes.set_xlim(-0.6, len(sizes) - 0.4)
        axes.set_xlabel("Batch size")


def label_points(
    axes: Axes,
    places: Sequence[tuple[float, float]],
    names: Sequence[str],
    others: Sequence[tuple[float, float]] = (),
) -> None:
    """Write names next to points, without covering other names, any point, or the others.

    Call it last: it depends on the axes' limits. Where there is no free space, the name is left
    out; it is still in the figure's data.
    """
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    figure: Any = axes.figure
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    dots = figure.dpi / 72  # pixels per typographic point, the unit of the layout

    def place_of(x: float, y: float) -> tuple[float, float]:
        """Convert pixels to points, with y downwards."""
        return x / dots, -y / dots

    marks = [place_of(*axes.transData.transform(place)) for place in (*places, *others)]
    taken = [Box.around(*mark, 2.0) for mark in marks]
    around = axes.get_window_extent(renderer)
    (left, top), (right, bottom) = place_of(around.x0, around.y1), place_of(around.x1, around.y0)
    room = Box(left, top - 4, right + 8, bottom)
    halo = [withStroke(linewidth=2.5, foreground=PAPER)]  # separates texts from grid lines
    for place, name, (x, y) in zip(places, names, marks, strict=False):
        text = axes.annotate(
            name, place, xytext=(0, 0), textcoords="offset points", fontsize=8.5, va="center",
            color=INK, annotation_clip=True, path_effects=halo,
        )  # fmt: skip
        extent = text.get_window_extent(renderer)
        size = extent.width / dots + 2, extent.height / dots
        mark = Box.around(x, y, 4.0)
        spot = first_free((*near_spots(mark, *size), *far_spots(mark, *size)), room, taken)
        if spot is None:
            text.remove()
            continue
        taken.append(spot.box)
        text.set_horizontalalignment(SIDES[spot.anchor])
        text.set_position((spot.x - x, y - spot.box.center))
        if spot.leader is not None:
            ends = [
                axes.transData.inverted().transform((across * dots, -down * dots))
                for across, down in spot.leader
            ]
            axes.plot(
                *zip(*ends, strict=True),
                color=colors.GRAY,
                linewidth=0.7,
                scalex=False,
                scaley=False,
            )
