"""Access for the user who starts a server on a loopback address: programs, and a browser.

All users of a machine can reach its loopback address, so a token is required there, too. It is
created at the first start, and programs of the same user find it automatically (`local_token`).
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from zeus.errors import TokenError
from zeus.state._files import write_atomically
from zeus.state._locks import locked
from zeus.store import Tokens
from zeus.store._tokens import new_secret
from zeus.transport._local_token import local_token_path, stored_token

_NOTE = "of the user who runs zeus serve on this machine"


def ensure_local_token(tokens: Tokens, now: float) -> tuple[str, Path]:
    """Return this user's token, valid for all jobs in the store, and the path of its file.

    A token that the store does not know is added to it: several servers of one user, each with its
    own store, share the token. One that is revoked or was readable by other users is replaced.

    Raises:
        TokenError: If the token file cannot be written.
        StorageError: If the store is unavailable.
    """
    try:
        path = local_token_path()
        with locked(path.with_name(f"{path.name}.lock")):
            return _ensure(path, tokens, now), path
    except TokenError:
        raise
    except OSError as error:
        raise TokenError(
            f"the token of this server cannot be saved ({error}): set ZEUS_STATE_DIR to a writable "
            "directory, or start it with --no-token"
        ) from error


def _ensure(path: Path, tokens: Tokens, now: float) -> str:
    kept = stored_token()
    known = None if kept is None else tokens.find(kept.secret)
    if kept is not None and kept.private:
        if known is None:
            tokens.create(None, now=now, note=_NOTE, secret=kept.secret)
            return kept.secret
        if known.good(now) and known.job is None and not known.read_only:
            return kept.secret
    elif known is not None:
        tokens.revoke(known.id, now=now)
    secret = new_secret()
    write_atomically(path, f"{secret}\n")  # readable by this user only
    tokens.create(None, now=now, note=_NOTE, secret=secret)
    return secret


class SignInCode:
    """A code that signs one browser in, once and within `MINUTES`.

    The user who starts a server gets it as a link. It is not the token itself, because the output
    may be kept in a log. In the link it follows the `#`, which browsers send neither to a server
    nor as a referrer; a script of the sign-in page submits it in a form.

    Args:
        token: Token that the browser is signed in with.
        now: Monotonic clock in seconds.

    Attributes:
        code: The one-time code.
    """

    MINUTES = 15

    def __init__(self, token: str, now: Callable[[], float] = time.monotonic) -> None:
        self.code = secrets.token_urlsafe(32)
        self._token: str | None = token
        self._now = now
        self._until = now() + 60 * self.MINUTES
        self._lock = threading.Lock()

    def take(self, code: str) -> str | None:
        """Return the token to the first caller with the right code in time, else `None`."""
        with self._lock:
            if self._now() >= self._until:
                self._token = None
            if not hmac.compare_digest(code.encode(), self.code.encode()):
                return None
            token, self._token = self._token, None
            return token
