"""Points and frontiers as they occur, and as they should not."""

from __future__ import annotations

from hypothesis import strategies as st

from zeus.frontier import Frontier, Point

# Few different values, so that ties and duplicates are common.
coarse = st.integers(1, 12).map(float)
fine = st.floats(1e-3, 1e6, allow_nan=False)
seconds = st.one_of(coarse, fine)
joules = st.one_of(st.integers(0, 12).map(float), fine)
uncertainties = st.one_of(st.none(), st.just(0.0), st.floats(1e-3, 3.0))

settings_of_a_knob = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53), 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=6,
)

percentiles = st.dictionaries(st.sampled_from(["p50", "p95", "p99"]), st.floats(0, 10))

points = st.builds(
    Point,
    st.integers(100, 130),
    seconds,
    joules,
    uncertainties,
    uncertainties,
    st.integers(0, 5),
    percentiles,
)
exact_points = st.builds(Point, st.integers(100, 130), seconds, joules)
frontiers = st.lists(points, min_size=1, max_size=12).map(Frontier)
exact_frontiers = st.lists(exact_points, min_size=1, max_size=12).map(Frontier)


@st.composite
def walks(draw, gpus=1):
    """A walk over clocks from high to low, on hardware whose cost has one valley.

    Power is static plus dynamic, which goes with the cube of the clock; part of the time goes with
    the clock, the rest does not. Energy and any ZeusCost are convex functions of the clock, and so
    fall to one valley.
    """
    clocks = draw(st.lists(st.integers(20, 100), min_size=1, max_size=15, unique=True))
    static = draw(st.floats(1, 100))
    dynamic = draw(st.floats(1, 300))
    waiting = draw(st.floats(0, 1))
    length = draw(st.floats(0.1, 1000))
    result = []
    for clock in sorted(clocks, reverse=True):
        share = clock / 100
        time = length * (waiting + (1 - waiting) / share)
        power = gpus * (static + dynamic * share**3)
        result.append(Point(clock, time, power * time))
    return Frontier(result, max_power=gpus * (static + dynamic))


@st.composite
def noisy_walks(draw):
    """What is true on a walk, and what was measured there, off by at most half the uncertainty."""
    truth = draw(walks())
    level = draw(st.floats(0, 0.1))
    off = st.floats(-0.5, 0.5)
    measured = [
        Point(
            point.knob,
            point.time * (1 + draw(off) * level),
            point.energy * (1 + draw(off) * level),
            point.time * level,
            point.energy * level,
        )
        for point in truth
    ]
    return truth, truth.with_points(measured)
