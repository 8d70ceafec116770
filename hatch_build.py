"""Compiles the pipeline solver while the package is built, if this machine has a C compiler.

Without one the package is built all the same, for any platform; the solver is then compiled where
it is first used.
"""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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
        # The library is loaded by ctypes: any Python of this platform will do.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _module(path: Path) -> ModuleType:
    """The package is not installed yet, so its file is loaded on its own."""
    spec = importlib.util.spec_from_file_location("zeus_pipeline_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
