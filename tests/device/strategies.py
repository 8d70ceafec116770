"""What users write into visibility variables, and what runs on a simulated node."""

from __future__ import annotations

from hypothesis import strategies as st

# Two share a long prefix, two a short one, so that prefixes may name one, several or none.
UUIDS = (
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f7",
    "GPU-8a000000-1111-2222-3333-444444444444",
    "GPU-5a1d0000-0000-4000-8000-000000000000",
)

spaces = st.sampled_from(["", " ", "  ", "\t"])
# A sign without a number makes the oracle itself fail, so these are for a test of their own.
numbers = st.one_of(
    st.integers(0, 5).map(str),
    st.integers(-2, 12).map(str),
    st.sampled_from(["+0", "+1", "-0", "-1", "00", "01", "1gpu2", "0x1", "2ampere", "3.5", "1_0"]),
)
words = st.sampled_from(["", "gpu", "all", "none", "NoDevFiles", "MIG-", "x1", ".", "GPU0"])
prefixes = st.sampled_from(UUIDS).flatmap(
    lambda uuid: st.integers(4, len(uuid)).map(lambda length: uuid[:length])
)
uuids = st.one_of(
    st.sampled_from(UUIDS),
    prefixes,
    st.sampled_from(["GPU-", "GPU-ffff", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6-more"]),
)


def _padded(entries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(spaces, entries, spaces).map("".join)


_entries = st.one_of(_padded(numbers), numbers, uuids, _padded(uuids), words)
visible_devices = st.one_of(
    st.lists(_padded(numbers), max_size=6).map(",".join),
    st.lists(uuids, max_size=6).map(",".join),
    st.lists(_entries, max_size=6).map(",".join),
)
"""Values of `CUDA_VISIBLE_DEVICES`: numbers, UUIDs, and mixtures with what does not belong."""

_loads = st.tuples(st.just("load"), st.floats(0, 1), st.floats(0.1, 1))
_idle = st.tuples(st.just("idle"), st.none(), st.none())
_limits = st.tuples(st.just("limit"), st.floats(0, 1), st.none())
_clocks = st.tuples(st.just("clock"), st.floats(0, 1), st.none())
schedules = st.lists(
    st.tuples(st.floats(0.0005, 0.3), st.one_of(_loads, _idle, _limits, _clocks)),
    min_size=1,
    max_size=12,
)
"""Seconds to let pass, then what to change: values are shares of the range that is allowed."""
