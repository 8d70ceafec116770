"""The site of the documentation: it builds without warnings, and nothing public is missing."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from sphinx.util.inventory import InventoryFile
from tests.test_house import PUBLIC_MODULES, PUBLIC_NAMES

import draw_rooms
import site_sources
from zeus.cli import COMMANDS, build_parser

ROOT = Path(__file__).parents[1]
MODULES = {"zeus." + name.removesuffix(".py").replace("/", ".") for name in PUBLIC_MODULES}
PARSER = build_parser(list(COMMANDS))


@pytest.mark.timeout(1200)
def test_the_site_builds_and_is_whole(tmp_path):
    """One test, as each worker of a parallel run would build it once more."""
    site = tmp_path / "html"
    _build_offline(site)
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            _check(link, path, site, pages)
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    _check_names(inventory)
    _check_options((site / "docs" / "reference" / "options.html").read_text(encoding="utf-8"))


def _build_offline(output: Path) -> None:
    """Build it as `make docs` does, where no connection can be made."""
    folder = ROOT / "docs" / "site"
    offline = (
        "import runpy, socket, sys\n"
        "def refuse(*_): raise OSError('the build needs no network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        f"sys.argv = ['make_site.py', '--output', {str(output)!r}]\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        f"runpy.run_path({str(folder / 'make_site.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", offline], capture_output=True, text=True, check=False, timeout=1100
    )
    assert (done.returncode, done.stderr) == (0, "")


class _Page(HTMLParser):
    """Anchors of a page, and what it links to or loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.add(found.get("id"))
        self.links |= {found[name] for name in ("href", "src") if found.get(name)}
        if tag != "a":
            self.loaded |= {found[name] for name in ("href", "src") if found.get(name)}


def _check(link: str, path: Path, site: Path, pages: dict[Path, _Page]) -> None:
    """A link leads to a file of the site and an anchor in it; nothing is loaded from elsewhere."""
    said = f"{path.relative_to(site)}: {link}"
    if re.match(r"https?:", link):
        assert link not in pages[path].loaded, said
        return
    if link.startswith("data:"):
        return
    address, _, anchor = link.partition("#")
    address = unquote(address.partition("?")[0])
    target = Path(os.path.normpath(path.parent / address)) if address else path
    assert target.is_file(), said
    if anchor and target.suffix == ".html":
        assert unquote(anchor) in pages[target].ids, said


def _check_names(inventory) -> None:
    """Every public name has an entry, and no other module has one."""
    entries = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    for package, names in PUBLIC_NAMES.items():
        assert {f"{package}.{name}" for name in names} <= entries
    assert {"zeus.errors.CapabilityError", "zeus.integrations.keras.ZeusCallback"} <= entries
    assert set(inventory["py:module"]) == MODULES | set(PUBLIC_NAMES)


def _check_options(page: str) -> None:
    text = re.sub(r"<[^>]*>", "", page)
    for name, own in _commands(PARSER).items():
        part = rf"^zeus {name}¶.*?(?=^zeus [\w-]+¶|\Z)"
        section = re.search(part, text, re.MULTILINE | re.DOTALL)
        assert section is not None, name
        for parser in (own, *_commands(own).values()):
            for action in parser._actions:
                if action.help != argparse.SUPPRESS and action.dest != "help":
                    for option in action.option_strings:
                        assert option in section[0], f"zeus {name} {option}"


def _commands(parser):
    found = [action.choices for action in parser._actions if action.nargs == "A..."]
    return dict(found[0]) if found else {}


def test_every_document_is_in_a_list_of_the_start_page():
    text = (ROOT / site_sources.START).read_text(encoding="utf-8")
    listed = {
        os.path.normpath(site_sources.START.parent / page)
        for _, pages in site_sources.sections(text)
        for page in pages
    }
    documents = {path.as_posix() for path in site_sources.documents()}
    assert documents - listed == {site_sources.START.as_posix()}


START_PAGES = sorted((ROOT / "docs" / "start").glob("*.md"))


@pytest.mark.parametrize("path", START_PAGES, ids=lambda path: path.stem)
def test_commands_of_pages_to_start_from_are_accepted(path):
    text = path.read_text(encoding="utf-8")
    lines = re.findall(r"^ {4,}(?:ZEUS_\w+=\S+ )*zeus (.*)$", text, re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(line.partition(" -- ")[0], comments=True)
        PARSER.parse_args([word for word in words if word != "--help"])  # raises UsageError


def test_the_picture_of_the_rooms_is_up_to_date():
    drawn = draw_rooms.svg(draw_rooms.picture())
    assert draw_rooms.FIGURE.read_text(encoding="utf-8") == drawn


def test_rooms_of_the_contract_are_drawn_and_described():
    text = draw_rooms.FIGURE.read_text(encoding="utf-8")
    shown = set(re.findall(r'font-weight="600">(\w+)</text>', text))
    rooms = {room for floor in draw_rooms.floors() for room in floor}
    assert rooms <= shown
    described = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in rooms:
        assert re.search(rf"`{room}(/|\.py)", described), room
    folders = {path.parent.name for path in (ROOT / "src" / "zeus").glob("*/__init__.py")}
    assert folders <= rooms
