"""Stored values: how they are parsed, and what is said of damaged ones."""

from __future__ import annotations

import json
from typing import Any

from zeus.errors import DamagedJobError


def parsed(text: Any) -> Any:
    """Parse the JSON of a stored value.

    Raises:
        ValueError: If it is invalid.
    """
    # Zeus writes only ASCII. Anything else is damage, and may not be safe to display.
    if not isinstance(text, str) or not text.isascii():
        raise ValueError("it is not ASCII text")
    return json.loads(text)


def damaged(job: str, why: str) -> DamagedJobError:
    """Return the error for a damaged job; its quotes are escaped for logs and terminals."""
    return DamagedJobError(
        f"the record of job {job!a:.120} in the store is damaged and cannot be read: "
        f"{ascii(why)[1:-1]:.200}"
    )
