"""The tools that are measured, each in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEER_FOLDER = ROOT / ".venv-peers"
PEERS = {"zeus": ("zeus", "0.16.0"), "codecarbon": ("codecarbon", "3.3.2")}
# Not a monitor: measured by its own task only.
SOLVERS = {"lowtime": ("lowtime", "0.3.0")}
OURS = "ours"


@dataclass(frozen=True)
class Tool:
    """A tool and the interpreter it is installed for; `error` says why it cannot be measured."""

    name: str
    distribution: str
    python: Path
    version: str = ""
    error: str = ""

    def described(self) -> dict[str, str]:
        """For the report."""
        if self.error:
            return {"distribution": self.distribution, "error": self.error}
        return {"distribution": self.distribution, "version": self.version}


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)


def ours() -> Tool:
    python, distribution = sys.executable, "zeus-energy"
    return Tool(OURS, distribution, Path(python), version_of(python, distribution))


def peer(name: str) -> Tool:
    """A peer in its own environment, which is made if it is not there yet."""
    distribution, version = (PEERS | SOLVERS)[name]
    python = PEER_FOLDER / name / "bin" / "python"
    try:
        if not python.exists() or version_of(python, distribution) != version:
            print(f"installing {distribution} {version}", file=sys.stderr, flush=True)
            environment = python.parents[1]
            make = [sys.executable, "-m", "venv", "--clear", str(environment)]
            subprocess.run(make, check=True, capture_output=True, text=True)
            pip(python, "install", f"{distribution}=={version}")
    except (OSError, subprocess.SubprocessError) as error:
        return Tool(name, distribution, python, error=why(error))
    return Tool(name, distribution, python, version)


def version_of(python: str | Path, distribution: str) -> str:
    ask = f"from importlib.metadata import version; print(version({distribution!r}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def why(error: Exception) -> str:
    """What a failed command said, or the error itself."""
    said = getattr(error, "stderr", None)
    return (said or str(error)).strip()[-500:]
