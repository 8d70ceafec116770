"""OpenAI-compatible servers: a client, and a proxy that states the energy of each response."""

from __future__ import annotations

from zeus.errors import MissingExtraError

try:
    import httptools  # noqa: F401  (so that its absence is reported with the fix)
except ImportError as error:
    raise MissingExtraError("the proxy of language-model servers", "serving") from error

from zeus.proxy._client import Answer, Chunk, OpenAIClient, Usage
from zeus.proxy._pool import Timeouts

__all__ = ["Answer", "Chunk", "OpenAIClient", "Timeouts", "Usage"]
