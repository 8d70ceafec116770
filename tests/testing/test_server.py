"""A server for the time of a block."""

from __future__ import annotations

import urllib.request

import pytest

from zeus.testing import serving


def test_a_server_answers_while_the_block_lasts(tmp_path):
    with serving(tmp_path) as address:
        with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
            assert answer.status == 200
        assert (tmp_path / "zeus.db").exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{address}/healthz", timeout=60)


def test_a_server_that_does_not_start_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="must start"), serving(tmp_path / "missing" / "folder"):
        pass
