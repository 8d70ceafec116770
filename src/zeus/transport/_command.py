"""Commands: requests to a server as values, the only description of its API.

A client sends a command (`Remote`), a store executes it, and the server makes its routes, its
request bodies and their documentation from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin
from urllib.parse import quote, urlencode

from zeus.errors import ServerError, TokenError, ZeusError
from zeus.transport._http_client import HttpClient

Answer = TypeVar("Answer")

_PARAMETER = re.compile(r"{(\w+)}")


@dataclass(frozen=True, kw_only=True)
class Command(Generic[Answer]):
    """A request to a server; `Answer` is the type of its answer.

    Fields that `path` names are sent in the URL, the others as query (GET) or as JSON body. Their
    rules are in their annotations, see `zeus._rules`; the server checks them. A default that is
    made for each command is for clients: on the wire, such a field is required. The first line of
    the docstring documents the request.

    Class attributes:
        method: HTTP method; GET reads, the others change something.
        path: Path on the server, with a parameter in braces for each field in it.
        answer: Type of the answer; it is that of the base class.
        renamed: Fields whose parameter in `path` has another name, by that name.
        inline: Field whose own fields are in the body, beside the other fields; empty if there is
            none.
        fast: Whether the server answers it past its web framework, because it is frequent.
        faults: Status codes of errors besides those that follow from the rest.

    Attributes:
        scope: Name of the only job that the caller may access; `None` allows any. It is not sent:
            the server takes it from the caller's token.
    """

    method: ClassVar[str]
    path: ClassVar[str]
    answer: ClassVar[Any] = None
    renamed: ClassVar[Mapping[str, str]] = {}
    inline: ClassVar[str] = ""
    fast: ClassVar[bool] = False
    faults: ClassVar[tuple[int, ...]] = ()

    scope: str | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in getattr(cls, "__orig_bases__", ()):
            for answer in get_args(base):
                cls.answer = None if answer is type(None) else answer

    @property
    def patience(self) -> float:
        """Seconds that the server may take to answer, besides those of any request."""
        return 0.0

    @classmethod
    def in_path(cls) -> Mapping[str, str]:
        """Return the fields in the path, by the name of their parameter."""
        return {name: cls.renamed.get(name, name) for name in _PARAMETER.findall(cls.path)}

    @classmethod
    def beside(cls) -> tuple[str, ...]:
        """Return the fields of the body besides those of the field `inline`."""
        kind: Any = cls
        return tuple(name for name in _content_names(kind) if name != cls.inline)

    def permit(self, job: str) -> None:
        """Check that the caller may access a job.

        Raises:
            TokenError: If not.
        """
        if self.scope is not None and self.scope != job:
            raise TokenError(f"the token is for job {self.scope!r} only")

    def content(self) -> dict[str, Any]:
        """Return the fields that are not in the path."""
        kind: Any = type(self)
        return {name: getattr(self, name) for name in _content_names(kind)}


@lru_cache(maxsize=256)
def _content_names(kind: Any) -> tuple[str, ...]:
    elsewhere = {"scope", *kind.in_path().values()}
    return tuple(field.name for field in fields(kind) if field.name not in elsewhere)


def plain(value: Any) -> Any:
    """Return a value as JSON can represent it."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value


def parsed(kind: Any, record: Any) -> Any:
    """Return a value of a type from its JSON; the inverse of `plain`."""
    if get_origin(kind) is list:
        (each,) = get_args(kind)
        return [parsed(each, item) for item in record]
    return kind.from_dict(record) if hasattr(kind, "from_dict") else record


class Remote:
    """Commands on a server.

    Thread-safe: each command has its own connection.

    Args:
        url: URL of the server, for example "http://127.0.0.1:8420".
        token: Token, if the server requires one; by default `ZEUS_TOKEN`, or on this machine
            that of this user's own server.
        timeout: Seconds for one command, from the first byte to the last.
        kinds: Errors that the server may respond with; any other is a `ServerError`.

    Raises:
        ServerError: If the URL is not a server's.
        TokenError: If the token is malformed.
    """

    def __init__(
        self, url: str, token: str | None, timeout: float, kinds: Iterable[type[ZeusError]]
    ) -> None:
        self._client = HttpClient(url, token, timeout, kinds)

    def do(self, command: Command[Answer]) -> Answer:
        """Execute a command on the server and return its answer.

        Raises:
            ServerError: If there is no answer, or an invalid one.
            ZeusError: The error that the server responds with.
        """
        target, body = _request(command)
        record = self._client.ask(command.method, target, body, patience=command.patience)
        try:
            answer: Answer = parsed(command.answer, record)
        except (TypeError, AttributeError, KeyError) as error:
            raise ServerError(f"the server's response is invalid: {error!r:.200}") from None
        return answer

    def close(self) -> None:
        """Do nothing: no connection is kept open."""


def _request(command: Command[Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the path with its query, and the body."""
    target = command.path
    for name, field in command.in_path().items():
        target = target.replace(f"{{{name}}}", quote(str(getattr(command, field)), safe=""))
    content = {name: plain(value) for name, value in command.content().items()}
    if command.method in ("GET", "DELETE"):
        query = urlencode({name: value for name, value in content.items() if value is not None})
        return f"{target}?{query}" if query else target, None
    inline = content.pop(command.inline, {})
    return target, {**content, **inline}
