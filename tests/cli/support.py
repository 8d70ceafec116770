"""Running the command as users do, in a process of its own; or here, where that is all the same."""

from __future__ import annotations

import contextlib
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ZEUS = [sys.executable, "-m", "zeus"]
LONG_ENOUGH = 240.0
"""Seconds after which something hangs for sure."""


def environment(**changes: str | None) -> dict[str, str]:
    """This process's variables with changes; `None` removes one."""
    # Users have a buffered stdout, which fails later than an unbuffered one.
    merged = {**os.environ, "PYTHONUNBUFFERED": None, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def zeus(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    **variables: str | None,
) -> subprocess.CompletedProcess[str]:
    """Run `zeus` to its end."""
    return subprocess.run(
        [*ZEUS, *arguments],
        env={**environment(**variables), **(env or {})},
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )


def zeus_here(capfd: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `zeus` in this process, which saves a second, for what needs no process of its own."""
    from zeus.cli import main

    capfd.readouterr()
    code = main(list(arguments))
    return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())


_started: list[subprocess.Popen[str]] = []


def start(
    *arguments: str, variables: Mapping[str, str | None] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """Start `zeus` and leave it running, at most until the end of the test."""
    process = subprocess.Popen(
        [*ZEUS, *arguments],
        env=environment(**(variables or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    _started.append(process)
    return process


def end_all() -> None:
    """End what a failed test has left running."""
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def one_error_line(done: subprocess.CompletedProcess[str]) -> str:
    """What went wrong, having checked that it was told in one line and without a traceback."""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("zeus: error: ")
    return lines[0]


@contextlib.contextmanager
def serving(page: bytes | Callable[[], bytes], status: int = 200) -> Iterator[str]:
    """A server on this machine with one page; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = page if isinstance(page, bytes) else page()
            self.send_response(status if self.path == "/metrics" else 404)
            self.send_header("Content-Length", f"{len(content)}")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
