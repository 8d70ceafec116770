"""Colors by role, for white paper, and for pages in light and dark mode.

A shape names a role; the renderer has a table of roles. Colors that encode an amount are literal
("#7a1450") and the same everywhere, as is the text on them. All colors that must be distinguished
are distinguishable with any kind of color vision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: For white paper, and pages in light mode.
DAY: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1c2733",
    "muted": "#5f6a78",
    "grid": "#edf0f4",
    "axis": "#c3cad4",
    "line": "#2464c9",
    "other": "#7d8896",
    "chosen": "#c2410c",
    "idle": "#eef1f5",
    "panel": "#f6f8fa",
    "row": "#fdeee6",
}
NIGHT: Mapping[str, str] = {
    "paper": "#12161b",
    "ink": "#e6eaf0",
    "muted": "#a2adba",
    "grid": "#222932",
    "axis": "#47515e",
    "line": "#7ab0ff",
    "other": "#8b97a6",
    "chosen": "#ff9d5c",
    "idle": "#222932",
    "panel": "#1a2027",
    "row": "#33241a",
}
#: For pages, whose style sheet has light and dark mode.
VARIABLES: Mapping[str, str] = {role: f"var(--{role})" for role in DAY}

#: For categories. Blue and orange are those of the line and of the choice; the others are from the
#: palette of Okabe and Ito.
BLUE, SKY, GREEN = DAY["line"], "#56b4e9", "#009e73"
AMBER, ORANGE, PURPLE, GRAY = "#e69f00", DAY["chosen"], "#cc79a7", "#98a2ae"

#: From low to high, also in grayscale.
HEAT = ("#fdf0d5", "#fbc37a", "#ef7f4f", "#c5364f", "#7a1450")


def in_table(color: str, table: Mapping[str, str]) -> str:
    """Return the color of a role; a literal color is returned unchanged."""
    return color if color.startswith("#") else table[color]


def style_sheet() -> str:
    """Return the roles as CSS variables, for light and dark mode."""

    def root(table: Mapping[str, str]) -> str:
        return f":root {{ {' '.join(f'--{role}: {color};' for role, color in table.items())} }}"

    return f"{root(DAY)}\n@media (prefers-color-scheme: dark) {{ {root(NIGHT)} }}\n"


def shade(share: float, colors: Sequence[str] = HEAT) -> str:
    """Return the interpolated color at a share of the way from the first to the last."""
    place = min(max(share, 0.0), 1.0) * (len(colors) - 1)
    number = min(int(place), len(colors) - 2)
    first, second = map(parts, colors[number : number + 2])
    mixed = (round(a + (b - a) * (place - number)) for a, b in zip(first, second, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def readable_on(color: str) -> str:
    """Return dark or white, whichever has more contrast on a literal color."""
    return max((DAY["ink"], DAY["paper"]), key=lambda text: contrast(text, color))


def contrast(one: str, other: str) -> float:
    """Return the WCAG 2 contrast of two literal colors: 1 is none, texts need 4.5."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    shares = (part / 255 for part in parts(color))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares)
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def parts(color: str) -> tuple[int, int, int]:
    """Return red, green and blue of a literal color, 0 to 255."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
