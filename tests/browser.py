"""A real browser for the tests of pages: headless Chromium, steered by playwright.

`python -m tests.browser` tells which one would be used.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PATIENCE = 60_000  # milliseconds; a busy host holds up browsers, too


def installed() -> str | None:
    """The browser on this machine; `ZEUS_BROWSER` names another."""
    found = [os.environ.get("ZEUS_BROWSER"), *map(shutil.which, _NAMES)]
    return next((path for path in found if path), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Playwright's `Browser`. The test is skipped where there is none, but not in a build."""
    # Of a module and no longer: while it is there, no other event loop can run in this thread.
    playwright = pytest.importorskip("playwright.sync_api")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    playwright.expect.set_options(timeout=_PATIENCE)
    with playwright.sync_playwright() as steering:
        try:
            started = steering.chromium.launch(
                executable_path=installed(), args=arguments, timeout=2 * _PATIENCE
            )
        except playwright.Error as error:
            reason = f"no browser starts here; `make browser` gets one ({error})"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page: call with a file or an address, and options of playwright's `new_context`.

    At the end, no page may have complained; a page from a file may have asked for nothing else.
    """
    contexts = []
    complaints: list[str] = []

    def complain(message: Any) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def only(address: str) -> Callable[[Any], None]:
        def asked(request: Any) -> None:
            if request.url != address and not request.url.startswith("data:"):
                complaints.append(f"asked for {request.url}")

        return asked

    def open_it(where: Path | str, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(_PATIENCE)
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        address = where.as_uri() if isinstance(where, Path) else where
        if isinstance(where, Path):
            page.on("request", only(address))
        page.goto(address)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []


def follow(page: Any, link: Any) -> None:
    """Click on what leads to another page, and wait until all of that is there."""
    with page.expect_navigation():
        link.click()


if __name__ == "__main__":
    print(installed() or "no browser is installed")
    sys.exit(installed() is None)
