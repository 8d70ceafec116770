"""The client side of servers of jobs: commands, and HTTP with deadlines and tokens."""

from __future__ import annotations

from zeus.transport._bearer import Bearer
from zeus.transport._command import Command, Remote, plain
from zeus.transport._http_client import HttpClient

__all__ = ["Bearer", "Command", "HttpClient", "Remote", "plain"]
