"""The HTTP client of servers of recurring and pipeline jobs: deadlines, tokens, errors in words."""

from __future__ import annotations

from zeus.transport._bearer import Bearer
from zeus.transport._http_client import HttpClient

__all__ = ["Bearer", "HttpClient"]
