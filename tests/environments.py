"""Virtual environments of their own for tests of installing: made in a moment, without a network.

What they need from others is taken from the environment of the tests: linked, or packed into wheels
again, from which pip installs it as from an index.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

NOT_IN_WHEELS = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


class Environment:
    """A virtual environment with pip, which finds what it installs in one folder only."""

    def __init__(self, folder: Path, wheels: Path, *linked: str) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.wheels = wheels
        self.python = folder / "bin" / "python"
        (self.packages,) = folder.glob("lib/python3*/site-packages")
        for name in ("pip", *linked):
            self.link(name)
        pip = folder / "bin" / "pip"
        pip.write_text(
            f"#!{self.python}\nimport sys\nfrom pip._internal.cli.main import main\n"
            "sys.exit(main())\n"
        )
        pip.chmod(0o755)

    def link(self, name: str) -> None:
        """Make a distribution of the tests' environment one of this environment, too."""
        for top in {Path(file).parts[0] for file in _files(name)}:
            (self.packages / top).symlink_to(str(distribution(name).locate_file(top)))

    def unpack(self, wheel: str) -> None:
        """Install a wheel of Python modules as pip does, in a tenth of the time."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
        (info,) = self.packages.glob(f"{Path(wheel).name.split('-')[0]}-*.dist-info")
        (info / "INSTALLER").write_text("pip\n")
        (info / "direct_url.json").write_text(
            json.dumps({"url": Path(wheel).as_uri(), "archive_info": {}})
        )

    def run(
        self, command: str, *, path: str | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a line in a shell, as somebody who has activated this environment, by default.

        Args:
            command: The line.
            path: Folders in which programs are searched.
            cwd: Working directory.
        """
        hidden = ("PYTHON", "PIP_", "ZEUS_", "VIRTUAL_ENV", "XDG_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
        variables = {
            "PATH": f"{self.python.parent}:{os.defpath}" if path is None else path,
            "HOME": str(self.folder),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # Files of other environments are linked, and not ours to compile.
            "PIP_NO_COMPILE": "1",
            "ZEUS_AGENT": "0",
            "ZEUS_STATE_DIR": str(self.folder / "state"),
        }
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=cwd or self.folder,
            env={**kept, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def done(self, command: str, *, path: str | None = None, cwd: Path | None = None) -> str:
        """Run a line that must succeed; return what it prints."""
        done = self.run(command, path=path, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _files(name: str) -> list[str]:
    """The files of an installed distribution, without its commands and what was compiled."""
    found = distribution(name).files or pytest.skip(f"{name} was not installed from a wheel")
    return [str(file) for file in found if not str(file).startswith("..") and file.suffix != ".pyc"]


def packed(name: str, folder: Path) -> Path:
    """Pack an installed distribution into a wheel again."""
    origin = distribution(name)
    files = {
        file: Path(str(origin.locate_file(file))).read_bytes()
        for file in _files(name)
        if Path(file).name not in NOT_IN_WHEELS
    }
    (info,) = {Path(file).parts[0] for file in files if ".dist-info/" in file}
    text = origin.read_text("WHEEL") or ""
    (tag, *_) = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("Tag")]
    return wheel(folder / f"{info.removesuffix('.dist-info')}-{tag}.whl", info, files)


def wheel(path: Path, info: str, files: dict[str, bytes]) -> Path:
    """Write a wheel with these files; `info` is the name of its folder of metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        record = ""
        for name, content in files.items():
            archive.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            record += f"{name},sha256={digest},{len(content)}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path
