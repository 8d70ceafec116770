"""All figures and tables, in the order of the paper."""

from __future__ import annotations

from collections.abc import Callable

from paper.exhibit import Exhibit
from paper.figures.clusters import figure_9
from paper.figures.converged import figure_6, figure_14, figure_23
from paper.figures.drifting import figure_10
from paper.figures.headline import headline
from paper.figures.multi_gpu import section_6_6
from paper.figures.paths import figure_4, figure_8, figure_20, figure_21
from paper.figures.potential import figure_1, figure_15
from paper.figures.regrets import figure_7, figure_19
from paper.figures.search import section_7
from paper.figures.sensitivity import figure_12, figure_13, figure_22
from paper.figures.sweeps import figure_5, figure_17, figure_18
from paper.figures.tables import figure_3, section_6_5, table_1, table_2
from paper.figures.tradeoff import figure_2, figure_11, figure_16
from paper.lab import Lab

CATALOGUE: dict[str, Callable[[Lab], Exhibit]] = {
    "headline": headline,
    "figure-1": figure_1,
    "figure-2": figure_2,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "figure-5": figure_5,
    "table-1": table_1,
    "table-2": table_2,
    "figure-6": figure_6,
    "figure-7": figure_7,
    "figure-8": figure_8,
    "figure-9": figure_9,
    "figure-10": figure_10,
    "section-6.5": section_6_5,
    "section-6.6": section_6_6,
    "figure-11": figure_11,
    "figure-12": figure_12,
    "figure-13": figure_13,
    "figure-14": figure_14,
    "section-7": section_7,
    "figure-15": figure_15,
    "figure-16": figure_16,
    "figure-17": figure_17,
    "figure-18": figure_18,
    "figure-19": figure_19,
    "figure-20": figure_20,
    "figure-21": figure_21,
    "figure-22": figure_22,
    "figure-23": figure_23,
}
