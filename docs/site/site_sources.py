"""What the site is made of: the Markdown files of the repository, and what they link to.

They are copied to where Sphinx reads them, at the same paths, so that links between them stay as
they are. Two things are added there: the start page's lists become the navigation, and a link to a
folder leads to a page that lists its files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
START = Path("docs/index.md")
FOLDERS = (
    ".",
    "docs",
    "docs/*",
    "benchmarks",
    "drivers",
    "examples/*",
    "paper",
    "paper/*",
    "verified",
)

_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def documents(root: Path = ROOT) -> list[Path]:
    """Return the paths of all Markdown files of the repository, relative to it."""
    found = (path for folder in FOLDERS for path in root.glob(f"{folder}/*.md"))
    return sorted({path.relative_to(root) for path in found})


def links(text: str) -> list[tuple[str, str]]:
    """Return target and anchor of each link to a file; code blocks are skipped."""
    found = _LINK.findall(_FENCE.sub("", text))
    return [(target, anchor) for target, anchor in found if "://" not in target]


def copy_sources(destination: Path, generated: Mapping[str, Iterable[str]]) -> None:
    """Copy all documents, and files that they link to.

    Args:
        destination: Folder that Sphinx will read.
        generated: Pages that will be made there, by the heading of the start page under which the
            navigation lists them.
    """
    folders = set()
    for document in documents():
        text = (ROOT / document).read_text(encoding="utf-8")
        for target, _ in links(text):
            linked = Path(os.path.normpath(document.parent / target))
            if (ROOT / linked).is_dir():
                folders.add(linked)
                text = text.replace(f"]({target})", f"]({target.rstrip('/')}/files.md)")
            elif linked.suffix != ".md":
                _copy(linked, destination)
        if document == START:
            text += _navigation(text, generated)
        (destination / document).parent.mkdir(parents=True, exist_ok=True)
        (destination / document).write_text(text, encoding="utf-8")
    for folder in folders:
        _list_files(folder, destination)


def _copy(path: Path, destination: Path) -> None:
    (destination / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / path, destination / path)


def _list_files(folder: Path, destination: Path) -> None:
    """Write the page of a folder that documents link to."""
    lines = ["---", "orphan: true", "---", f"# Files in {folder}", ""]
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file():
            _copy(path.relative_to(ROOT), destination)
            within = path.relative_to(ROOT / folder).as_posix()
            lines.append(f"- [{within}]({within})")
    (destination / folder / "files.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _navigation(text: str, generated: Mapping[str, Iterable[str]]) -> str:
    """Return the tables of contents: one for each section of the start page with links."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {heading}\n\n"
        + "\n".join([*pages, *generated.get(heading, ())])
        + "\n```\n"
        for heading, pages in sections(text)
    )


def sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield heading and linked documents of each section of the start page that has any."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        if pages := [target for target, _ in links(body) if target.endswith(".md")]:
            yield heading, list(dict.fromkeys(pages))
