"""Names and keywords that zeus 0.16 had: `zeus._bridges` is imported when one is used.

Modules are found by `zeus._lazy`. To drop all of them one day, delete `_bridges/`, this module with
its two uses, and `find_former_modules`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def former_names(module: str) -> Callable[[str], Any]:
    """Return `__getattr__` for a module that had further names.

    Args:
        module: The module's `__name__`.
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # the import system asks for `__path__`
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return import_module("zeus._bridges._modules").former_name(module, name)

    return get


def missing_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that an object does not have, but may have had.

    Args:
        owner: The object.
        name: The attribute.
    """
    kind = type(owner).__name__
    text = f"{kind!r} object has no attribute {name!r}"
    if not name.startswith("_"):
        text += import_module("zeus._bridges._modules").former_attribute(kind, name)
    return AttributeError(text, name=name, obj=owner)


def former_keywords(translator: str) -> Callable[[_Class], _Class]:
    """Return a decorator of a class that also takes the keywords that it had.

    Args:
        translator: Module of `zeus._bridges` whose `translated` returns keywords of today.
    """

    def decorate(kind: _Class) -> _Class:
        from functools import wraps  # noqa: PLC0415

        init: Any = vars(kind)["__init__"]
        known = init.__annotations__

        @wraps(init)
        def accept(self: object, *args: Any, **keywords: Any) -> None:
            if not keywords.keys() <= known.keys():
                keywords = import_module(f"zeus._bridges.{translator}").translated(keywords)
            init(self, *args, **keywords)

        type.__setattr__(kind, "__init__", accept)
        return kind

    return decorate
