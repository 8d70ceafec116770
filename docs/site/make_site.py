"""Builds the site of the documentation: `make docs`, or `python docs/site/make_site.py`.

Needs no network. Every warning of Sphinx is an error: a link that leads nowhere, a page that is in
no list, a docstring that is no valid text.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import main as run_sphinx
from sphinx.ext.autodoc.mock import mock  # type: ignore[attr-defined]  # it has moved inside

from api_pages import public_names, summary, write_api_pages
from command_pages import write_command_page, write_json_page
from site_sources import ROOT, copy_sources

HERE = Path(__file__).parent
FRAMEWORKS = [
    "accelerate", "keras", "lightning", "mlflow", "pytorch_lightning", "tensorboardX", "torch",
    "trackio", "transformers", "wandb",
]  # fmt: skip
"""Are not imported for the docstrings of their integrations: it would take longer than the rest."""
REFERENCE = "Reference"
"""Heading of the start page under which generated pages are listed."""


def build(output: Path) -> int:
    """Build the site and return the exit code of Sphinx.

    Args:
        output: Folder for the HTML files; what is in it is replaced.
    """
    with tempfile.TemporaryDirectory(prefix="zeus-docs-") as scratch, mock(FRAMEWORKS):
        source = Path(scratch) / "source"
        write_sources(source)
        shutil.rmtree(output, ignore_errors=True)
        options = ["-W", "--keep-going", "-q", "-b", "html", "-d", f"{scratch}/doctrees"]
        code = run_sphinx([*options, "-c", str(HERE), str(source), str(output)])
    if code == 0:
        shutil.copyfile(HERE / "redirect.html", output / "index.html")
    return code


def write_sources(source: Path) -> None:
    """Write all that Sphinx reads: documents of the repository, and generated pages."""
    reference = source / "docs" / "reference"
    write_command_page(reference / "options.md")
    write_json_page(reference / "json.rst")
    modules = public_names(ROOT / "src" / "zeus")
    write_api_pages(reference / "api", modules)
    entries = "\n".join(f"   api/{module}" for module in modules)
    summaries = "\n".join(f"- :doc:`api/{module}`: {summary(module)}" for module in modules)
    (reference / "api.rst").write_text(
        "Names in Python\n===============\n\n"
        "All public names, by the package that hands them out. Others may change at any time.\n\n"
        f"{summaries}\n\n.. toctree::\n   :hidden:\n   :titlesonly:\n\n{entries}\n",
        encoding="utf-8",
    )
    copy_sources(
        source, {REFERENCE: [f"reference/{name}" for name in ("options.md", "json.rst", "api.rst")]}
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "docs", metavar="DIR")
    output = parser.parse_args().output
    code = build(output)
    if code == 0:
        print(f"{output}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
