"""Tokens that authorize clients of a server that is reachable by others.

A token is a secret of 256 random bits, so its unsalted hash can be stored: it cannot be reversed by
guessing. Each is valid for one job, or for all; for everything, or for reading only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from sqlalchemy import insert, select, update

from zeus.errors import TokenError
from zeus.store._store import Store
from zeus.store._tables import tokens

_PREFIX = "zeus_"


@dataclass(frozen=True)
class Token:
    """Metadata of a token, without its secret.

    Attributes:
        id: Identifier of the token.
        job: Name of the only job that it is valid for; `None` if for all.
        note: Its purpose.
        created: Creation time in seconds since 1970; `expires` and `revoked` likewise, if ever.
        read_only: Whether it permits only reading.
    """

    id: str
    job: str | None
    note: str
    created: float
    expires: float | None
    revoked: float | None
    read_only: bool

    def good(self, now: float) -> bool:
        """Whether it is still valid.

        Args:
            now: Seconds since 1970.
        """
        return self.revoked is None and (self.expires is None or now < self.expires)

    def allows(self, job: str) -> bool:
        """Whether it is valid for this job."""
        return self.job is None or self.job == job


_COLUMNS = (
    tokens.c.id,
    tokens.c.job,
    tokens.c.note,
    tokens.c.created,
    tokens.c.expires,
    tokens.c.revoked,
    tokens.c.read_only,
)


class Tokens:
    """The tokens of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(
        self,
        job: str | None,
        *,
        now: float,
        expires: float | None = None,
        note: str = "",
        read_only: bool = False,
        secret: str | None = None,
    ) -> tuple[str, Token]:
        """Create a token; return its secret, which is not stored, and its metadata.

        Args:
            job: The only job that it is valid for; `None` for all.
            now: Current time in seconds since 1970; `expires` likewise.
            expires: When it expires; by default never.
            note: Its purpose.
            read_only: Whether it permits only reading.
            secret: Secret from `new_secret`; by default a new one.
        """
        secret = secret or new_secret()
        token = Token(secrets.token_hex(4), job, note, now, expires, None, read_only)
        values = {**vars(token), "hash": _hash(secret)}
        with self._store.writing() as connection:
            connection.execute(insert(tokens), values)
        return secret, token

    def find(self, secret: str) -> Token | None:
        """Return the token, valid or not; `None` if it does not exist.

        Args:
            secret: The token.
        """
        wanted = _hash(secret)
        with self._store.reading() as connection:
            statement = select(tokens.c.hash, *_COLUMNS).where(tokens.c.hash == wanted)
            row = connection.execute(statement).first()
        if row is None or not hmac.compare_digest(row[0], wanted):
            return None
        return Token(*row[1:])

    def find_by_pass(self, given: str) -> Token | None:
        """Return the token of a `page_pass`, valid or not; `None` if the pass is invalid.

        Args:
            given: The pass.
        """
        name = given.partition(".")[0]
        with self._store.reading() as connection:
            statement = select(tokens.c.hash, *_COLUMNS).where(tokens.c.id == name)
            row = connection.execute(statement).first() if name.isprintable() else None
        if row is None or not hmac.compare_digest(_pass(name, row[0]), given.encode()):
            return None
        return Token(*row[1:])

    def all(self) -> list[Token]:
        """Return all tokens, the oldest first."""
        statement = select(*_COLUMNS).order_by(tokens.c.created, tokens.c.id)
        with self._store.reading() as connection:
            return [Token(*row) for row in connection.execute(statement)]

    def revoke(self, name: str, *, now: float) -> Token:
        """Revoke a token; one that is already revoked is not changed.

        Args:
            name: Identifier of the token.
            now: Seconds since 1970.

        Raises:
            TokenError: If there is no token with this id.
        """
        known = select(*_COLUMNS).where(tokens.c.id == name)
        with self._store.writing() as connection:
            row = connection.execute(known).first() if name.isprintable() else None
            if row is None:
                raise TokenError(f"there is no token with the id {name!r}")
            unrevoked = update(tokens).where(tokens.c.id == name, tokens.c.revoked.is_(None))
            connection.execute(unrevoked.values(revoked=now))
            return Token(*connection.execute(known).one())


def page_pass(token: Token, secret: str) -> str:
    """Return a pass for the web pages, from which the token cannot be derived."""
    return _pass(token.id, _hash(secret)).decode()


def _pass(name: str, hashed: str) -> bytes:
    return f"{name}.{hmac.new(hashed.encode(), b'pages', hashlib.sha256).hexdigest()}".encode()


def new_secret() -> str:
    """Return a new random secret of 256 bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
