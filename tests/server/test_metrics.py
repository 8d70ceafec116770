"""What the server tells Prometheus."""

from __future__ import annotations

from zeus.server._metrics import gauge


def test_counters_keep_all_digits():
    assert gauge("zeus_commands_total", 12_345_679, "Changes.", "counter") == [
        "# HELP zeus_commands_total Changes.",
        "# TYPE zeus_commands_total counter",
        "zeus_commands_total 12345679",
    ]
    assert gauge("zeus_jobs", 0.25, "Jobs.")[1:] == ["# TYPE zeus_jobs gauge", "zeus_jobs 0.25"]
