"""What hatchling cannot know by itself: the compiled pipeline solver, and where the project lives.

Without a C compiler the package is built all the same, for any platform; the solver is then
compiled where it is first used. Without a known address the package names none.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGE = Path("src/zeus/optimizer/pipeline_frequency")


class SolverHook(BuildHookInterface[Any]):
    """Adds the compiled library to wheels and editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Called before the files are collected."""
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / PACKAGE
        builder = _module(folder / "_build.py")
        for old in folder.glob("zeus_pipeline-*.so"):
            if old.name != builder.library_name():
                old.unlink()
        try:
            library = builder.build(folder)
        except (builder.BuildError, OSError) as error:
            self.app.display_warning(f"the pipeline solver is left to be compiled later: {error}")
            return
        build_data["artifacts"].append(f"/{PACKAGE.as_posix()}/{library.name}")
        build_data["pure_python"] = False
        # The library is loaded by ctypes: any Python of this platform will do. An index accepts
        # what auditwheel makes of this tag (`make wheel`).
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


class AddressHook(MetadataHookInterface):
    """Adds the addresses of the project, and a README whose links lead there from an index."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called unless the sources are a source distribution, which has the result."""
        folder = Path(self.root)
        text = (folder / "README.md").read_text(encoding="utf-8")
        address = project_address(folder)
        if address is not None:
            files = f"{address}/blob/HEAD"
            metadata["urls"] = {
                "Homepage": address,
                "Documentation": f"{files}/docs",
                "Changelog": f"{files}/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
            text = re.sub(r"\]\((?!https?://|#)", f"]({files}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def project_address(folder: Path) -> str | None:
    """Return where the repository is published: `ZEUS_PROJECT_URL`, or the remote `origin`.

    A name, password or token in the address of the remote is left out. `None` if it is published
    nowhere, such as a copy of a folder.
    """
    given = os.environ.get("ZEUS_PROJECT_URL", "")
    if not given and (folder / ".git").exists():
        ask = ["git", "-C", str(folder), "remote", "get-url", "origin"]
        try:
            done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        given = re.sub(r"^(?:\w+@)?([\w.-]+):(?!/)", r"ssh://\1/", done.stdout.strip())
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https", "ssh", "git") or parts.hostname is None:
        return None
    return f"https://{parts.hostname}{parts.path.rstrip('/').removesuffix('.git')}"


def _module(path: Path) -> ModuleType:
    """The package is not installed yet, so its file is loaded on its own."""
    spec = importlib.util.spec_from_file_location("zeus_pipeline_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
