"""The audit log: lines are appended, whole, and old logs kept for a while."""

from __future__ import annotations

import json
import os
import threading

from zeus.agent._audit import Audit, read_audit, rotated


def test_events_are_read_back_in_order(tmp_path):
    audit = Audit(tmp_path / "log" / "audit.jsonl")
    for number in range(3):
        audit.write("lease began", number=number)
    events = list(read_audit(tmp_path / "log" / "audit.jsonl"))
    assert [event["number"] for event in events] == [0, 1, 2]
    assert all(event["time"].endswith("Z") for event in events)


def test_a_log_goes_on_where_an_earlier_agent_stopped(tmp_path):
    path = tmp_path / "audit.jsonl"
    Audit(path).write("one")
    Audit(path).write("two")
    assert [event["event"] for event in read_audit(path)] == ["one", "two"]


def test_a_large_log_is_renamed_and_the_oldest_deleted(tmp_path):
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, max_bytes=1_000)
    for number in range(200):
        audit.write("event", number=number)
    numbers = [event["number"] for event in read_audit(path)]
    assert numbers == list(range(numbers[0], 200))
    assert numbers[0] > 0
    assert sorted(tmp_path.iterdir()) == sorted(rotated(path, number) for number in range(5))
    assert all(file.stat().st_size < 1_200 for file in tmp_path.iterdir())


def test_lines_of_several_threads_are_whole(tmp_path):
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, max_bytes=20_000)

    def write():
        for _ in range(100):
            audit.write("event", text="x" * 100)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert all(json.loads(line)["text"] == "x" * 100 for line in lines)


def test_a_log_that_cannot_be_written_is_reported_once_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "audit.jsonl").mkdir()
    audit = Audit(tmp_path / "audit.jsonl")
    audit.write("one")
    audit.write("two")
    assert len(caplog.records) == 1
    (tmp_path / "audit.jsonl").rmdir()
    audit.write("three")
    assert [event["event"] for event in read_audit(tmp_path / "audit.jsonl")] == ["three"]


def test_lines_that_are_none_are_left_out(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"event": "one"}\n\xff\xfe\n[]\n{"event": "tw')
    assert [event["event"] for event in read_audit(path)] == ["one"]


def test_a_line_that_a_full_disk_cuts_short_spoils_no_other(tmp_path, monkeypatch):
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    audit.write("one")
    with monkeypatch.context() as full:
        write = os.write
        full.setattr("zeus.agent._audit.os.write", lambda file, raw: write(file, raw[:10]))
        audit.write("two")
    audit.write("three")
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["one", "three"]


def test_refusals_of_one_user_push_nothing_out_of_the_log(tmp_path, monkeypatch):
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, max_bytes=10_000)
    now = [100.0]
    monkeypatch.setattr("zeus.agent._audit.time.monotonic", lambda: now[0])
    audit.write("lease began")
    for _ in range(10_000):
        audit.refused(21_000, why="not allowed")
    audit.refused(21_001, why="of another user")
    now[0] += 61
    audit.refused(21_000, why="later")
    events = list(read_audit(path))
    assert events[0]["event"] == "lease began"
    assert len(events) == 1 + 30 + 1 + 1
    assert "left_out" not in events[-2]
    assert events[-1]["left_out"] == 10_000 - 30
