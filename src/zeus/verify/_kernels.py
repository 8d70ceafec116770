"""The program that loads a GPU, in a process of its own: `python -m zeus.verify._kernels`.

A framework that hangs, crashes or keeps GPU memory costs only this process. It reads one JSON
object per line and answers each with one: `{"framework", "module", "ordinal"}` first, answered by
`name` or `error`; then `{"segments": [[seconds, on], ...]}`, answered by `edges` as
`[instant, on]`, or `{"steps": seconds}`, answered by `steps` as `[begin, seconds]`. Instants are of
`time.monotonic()`, which is the same for all processes. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

_SIZES = (1024, 2048, 4096, 8192)
_KERNEL = 1e-3  # seconds that one launch should take, so that an edge is known about as well
_BEHIND = 2  # launches that may be waiting, so that the GPU never is

Launch = Callable[[], Any]
Wait = Callable[[Any], object]


def _torch(module: str, ordinal: int) -> Callable[[int], tuple[Launch, Wait]]:
    import torch  # noqa: PLC0415

    backend: Any = getattr(torch, module)
    if not backend.is_available():
        raise RuntimeError(f"torch.{module}.is_available() is false")
    on_host = module == "cpu"
    device = "cpu" if on_host else f"{module}:{ordinal}"
    kind = torch.float32 if on_host else torch.float16

    def made(size: int) -> tuple[Launch, Wait]:
        left = torch.ones(size, size, device=device, dtype=kind)
        out = torch.empty_like(left)

        def launch() -> Any:
            torch.mm(left, left, out=out)
            if on_host:
                return None
            event = backend.Event()
            event.record(backend.current_stream(ordinal))
            return event

        return launch, lambda event: event is None or event.synchronize()

    return made


def _cupy(_: str, ordinal: int) -> Callable[[int], tuple[Launch, Wait]]:
    import cupy  # noqa: PLC0415

    cupy.cuda.Device(ordinal).use()

    def made(size: int) -> tuple[Launch, Wait]:
        left = cupy.ones((size, size), dtype=cupy.float16)

        def launch() -> Any:
            cupy.matmul(left, left)
            event = cupy.cuda.Event(disable_timing=True)
            event.record()
            return event

        return launch, lambda event: event.synchronize()

    return made


def _jax(module: str, ordinal: int) -> Callable[[int], tuple[Launch, Wait]]:
    import jax  # noqa: PLC0415

    device = jax.local_devices(backend="cpu" if module == "cpu" else "gpu")[ordinal]

    def made(size: int) -> tuple[Launch, Wait]:
        left = jax.device_put(jax.numpy.ones((size, size), jax.numpy.bfloat16), device)
        multiply = jax.jit(lambda matrix: matrix @ matrix)
        return lambda: multiply(left), lambda result: result.block_until_ready()

    return made


_FRAMEWORKS = {"torch": _torch, "jax": _jax, "cupy": _cupy}


class Kernels:
    """Matrix products, launched so that the GPU always has one to run."""

    def __init__(self, framework: str, module: str, ordinal: int) -> None:
        make = _FRAMEWORKS[framework](module, ordinal)
        for size in _SIZES:
            self._launch, self._wait = make(size)
            self._once()  # the first loads the kernel
            begun = time.monotonic()
            for _ in range(3):
                self._once()
            if (time.monotonic() - begun) / 3 > _KERNEL:
                break
        self.name = f"matrix products of {size} x {size} with {framework}"

    def _once(self) -> None:
        self._wait(self._launch())

    def run_until(self, end: float) -> None:
        waiting = [self._launch()]
        while time.monotonic() < end:
            waiting.append(self._launch())
            if len(waiting) > _BEHIND:
                self._wait(waiting.pop(0))
        for each in waiting:
            self._wait(each)

    def pattern(self, segments: list[list[Any]]) -> list[tuple[float, bool]]:
        """Run in the segments that are on; return when it really began and ended."""
        edges: list[tuple[float, bool]] = []
        now = time.monotonic()
        for seconds, on in segments:
            end = now + seconds
            edges.append((time.monotonic(), bool(on)))
            if on:
                self.run_until(end)
            else:
                time.sleep(max(end - time.monotonic(), 0.0))
            now = end
        edges.append((time.monotonic(), False))
        return edges

    def steps(self, seconds: float) -> list[tuple[float, float]]:
        """Return begin and duration of products one after the other."""
        done = []
        end = time.monotonic() + seconds
        while (begun := time.monotonic()) < end:
            self._once()
            done.append((begun, time.monotonic() - begun))
        return done


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # frameworks print

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    kernels: Kernels | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if kernels is None:
                kernels = Kernels(**request)
                answer(name=kernels.name)
            elif "segments" in request:
                answer(edges=kernels.pattern(request["segments"]))
            else:
                answer(steps=kernels.steps(request["steps"]))
        except Exception as error:  # whatever a framework raises is the reason
            text = (str(error) or type(error).__name__).splitlines()[0]
            answer(error=f"{type(error).__name__}: {text}"[:300])
            return


if __name__ == "__main__":
    main()
