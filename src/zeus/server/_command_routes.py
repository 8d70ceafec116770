"""Routes of the API, made from its commands: parameters, request bodies and their documentation.

The fields of a command and their rules are all that is known of a request. Only types and ranges
are checked here; the rules between values are checked where the command is executed.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from starlette.responses import JSONResponse, Response

from zeus._rules import Items, Note, Number, Numbers, OneOf, Text, Texts, Whole
from zeus.server._responses import Json, documented
from zeus.transport._command import Command, plain

Execute = Callable[[Request, Any], Awaitable[Any]]
"""Executes a command for a request and returns its answer."""


def add_routes(router: APIRouter, commands: Iterable[type[Command[Any]]], execute: Execute) -> None:
    """Add a route for each command."""
    for kind in commands:
        body, empty = body_of(kind), kind.answer is None
        router.add_api_route(
            kind.path,
            _endpoint(kind, body, execute),
            methods=[kind.method],
            description=_summary(kind),
            responses=_faults(kind, body),
            response_model=_answer(kind.answer),
            status_code=204 if empty else 200,
            response_class=Response if empty else JSONResponse,
        )


def answered(answer: Any) -> Response:
    """Return the response with an answer."""
    return Response(status_code=204) if answer is None else Json(plain(answer))


def body_of(kind: type[Command[Any]]) -> type[BaseModel] | None:
    """Return the model of a command's body; `None` if it has none."""
    if kind.method in ("GET", "DELETE"):
        return None
    made = _fields(kind, {"scope", kind.inline, *kind.in_path().values()})
    if kind.inline:
        made |= _fields(get_type_hints(kind)[kind.inline])
    name = f"{kind.__name__}Body"
    return create_model(name, __base__=_Body, __doc__=_summary(kind), **made) if made else None


def command_of(
    kind: type[Command[Any]], scope: str | None, given: Mapping[str, Any], body: BaseModel | None
) -> Command[Any]:
    """Return the command of a request.

    Args:
        kind: Class of the command.
        scope: Name of the only job that the caller may access; `None` for all.
        given: Parameters of the path and the query, by the names of their fields.
        body: The body, if the command has one.
    """
    content = {} if body is None else body.model_dump()
    if kind.inline:
        source = get_type_hints(kind)[kind.inline]
        make = source.from_dict if hasattr(source, "from_dict") else lambda each: source(**each)
        others = {name: content.pop(name) for name in kind.beside() if name in content}
        content = {kind.inline: make(content), **others}
    return kind(scope=scope, **given, **content)


def _endpoint(
    kind: type[Command[Any]], body: type[BaseModel] | None, execute: Execute
) -> Callable[..., Awaitable[Response]]:
    """Return the function that answers a request, with the signature that documents it."""
    in_path = kind.in_path()

    async def endpoint(request: Request, body: Any = None, **given: Any) -> Response:
        values = {in_path.get(name, name): value for name, value in given.items()}
        command = command_of(kind, request.state.scope, values, body)
        return answered(await execute(request, command))

    # The framework derives the name of the operation from it.
    endpoint.__name__ = re.sub(r"(?<=.)([A-Z])", r"_\1", kind.__name__).lower()
    signature = inspect.Signature(_parameters(kind, body))
    endpoint.__signature__ = signature  # type: ignore[attr-defined]
    return endpoint


def _parameters(kind: type[Command[Any]], body: type[BaseModel] | None) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    found = {"request": _parameter("request", Request)}
    for name, field in kind.in_path().items():
        found[name] = _parameter(name, Annotated[_documented(hints[field]), Path()])
    if body is not None:
        found["body"] = _parameter("body", body)
    elif kind.method == "GET":
        for each in fields(kind):
            if each.name != "scope" and each.name not in kind.in_path().values():
                hint: Any = _documented(hints[each.name])
                found[each.name] = _parameter(each.name, Annotated[hint, Query()], each.default)
    return list(found.values())


def _parameter(name: str, hint: Any, default: Any = MISSING) -> inspect.Parameter:
    given = inspect.Parameter.empty if default is MISSING else default
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=given, annotation=hint)


def _faults(
    kind: type[Command[Any]], body: type[BaseModel] | None
) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a command, for its documentation."""
    codes = {*kind.faults, *({422} if len(_parameters(kind, body)) > 1 else ())}
    if kind.in_path():
        codes |= {404, 500}
    if body is not None:
        codes |= {400, 409, 413, 415, 500}
    return documented(*sorted(codes))


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0]


def _answer(hint: Any) -> Any:
    """Return the type of an answer as the web framework documents it."""
    if get_origin(hint) in (list, Union, types.UnionType):
        parts = tuple(map(_answer, get_args(hint)))
        return types.GenericAlias(list, parts) if get_origin(hint) is list else Union[parts]  # noqa: UP007
    if hasattr(hint, "to_dict"):
        return _message_model(hint)
    return _record_model(hint) if is_typeddict(hint) else hint


@lru_cache(maxsize=256)
def _message_model(message: type) -> type[BaseModel]:
    """Return the model of a message; other messages within it have a JSON form of their own."""
    hints, words = get_type_hints(message), _attributes(message)
    made: dict[str, Any] = {}
    for field in fields(message):
        parts = get_args(hints[field.name]) or (hints[field.name],)
        own = any(hasattr(part, "to_dict") for part in parts)
        hint = Union[dict[str, Any], None] if own else hints[field.name]  # noqa: UP007
        default = ... if field.default is MISSING else field.default
        made[field.name] = (hint, Field(default, description=words.get(field.name)))
    return create_model(message.__name__, __doc__=_summary(message), **made)


@lru_cache(maxsize=256)
def _record_model(record: Any) -> type[BaseModel]:
    made: dict[str, Any] = {
        name: (_answer(hint), ...) for name, hint in get_type_hints(record).items()
    }
    return create_model(record.__name__, __doc__=record.__doc__, **made)


# --- bodies ---------------------------------------------------------------------------------------


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def _model(name: str, source: type) -> type[BaseModel]:
    """Return the model of a dataclass, with the rules of its fields."""
    return create_model(name, __base__=_Body, __doc__=_summary(source), **_fields(source))


def _fields(source: type, skip: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a model, with their rules."""
    hints, words = get_type_hints(source, include_extras=True), _attributes(source)
    made: dict[str, Any] = {}
    for field in fields(source):
        if field.name not in skip:
            # A default that is made for each value is the client's.
            default = ... if field.default is MISSING else plain(field.default)
            # One of several fields becomes the model of its type as a given one does.
            several = isinstance(default, dict) or None
            about = Field(default, description=words.get(field.name), validate_default=several)
            made[field.name] = (_documented(hints[field.name]), about)
    return made


def _documented(hint: Any) -> Any:
    """Return an annotation with its rule as the web framework documents and enforces it."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _ruled(hint.__metadata__[0])
    if origin in (Union, types.UnionType):
        return Union[tuple(_documented(each) for each in get_args(hint))]  # noqa: UP007
    if isinstance(hint, type) and is_dataclass(hint):
        return _model(hint.__name__, hint)
    return hint


def _ruled(rule: Any) -> Any:
    bounds: dict[str, Any]
    match rule:
        case Number(least=least, most=most, above=above):
            bounds = {"gt" if above else "ge": least, "le": most}
            return Annotated[float, Field(**bounds)]
        case Whole(least=least, most=most):
            # Bounds are documented as floats: a large one is rounded up, and must not be included.
            bounds = {"le": most} if most is None or most <= 2**53 else {"lt": most + 1}
            return Annotated[int, Field(ge=least, **bounds), BeforeValidator(_whole)]
        case Text(most=most, empty=empty):
            return Annotated[str, Field(min_length=None if empty else 1, max_length=most)]
        case Note(most=most):
            return Annotated[str, Field(max_length=most)]
        case OneOf(words=words):
            return Literal[words]
        case Numbers(each=each, least=least, most=most):
            items = types.GenericAlias(list, (_ruled(each),))
            return Annotated[items, Field(min_length=least or None, max_length=most)]
        case Texts(each=each, most=most):
            items = types.GenericAlias(list, (_ruled(each),))
            return Annotated[items, Field(max_length=most)]
        case Items(each=each, least=least, most=most):
            items = types.GenericAlias(list, (_documented(each),))
            return Annotated[items, Field(min_length=least or None, max_length=most)]
    raise TypeError(f"a rule that cannot be documented: {rule!r}")


def _whole(value: Any) -> Any:
    """Convert floats such as 1.0 to int: JSON does not distinguish them, pydantic does."""
    return int(value) if type(value) is float and value.is_integer() else value


def _attributes(source: type) -> dict[str, str]:
    """Return what the docstring of a class says about its attributes."""
    text = (inspect.getdoc(source) or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", text, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", words) for name, words in found}
