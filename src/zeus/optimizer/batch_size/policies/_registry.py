"""The policies that a job may name."""

from __future__ import annotations

from typing import Any

from zeus import _extensions
from zeus._rules import shown
from zeus.errors import ExtensionError, JobSpecError
from zeus.optimizer.batch_size.policies._base import Policy
from zeus.optimizer.batch_size.policies._default import DefaultPolicy
from zeus.optimizer.batch_size.policies._grid import GridPolicy
from zeus.optimizer.batch_size.policies._paper import PaperPolicy, RepairedPaperPolicy
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy

_POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        ZeusPolicy(),
        PaperPolicy(),
        RepairedPaperPolicy(),
        GridPolicy(),
        DefaultPolicy(),
    )
}


def policy_named(name: str) -> Policy:
    """Return the policy that `JobSpec.policy` names; policy objects are stateless.

    Raises:
        JobSpecError: If it is of another distribution, and cannot be used.
    """
    found = _POLICIES.get(name) or outside_policies().get(name)
    if found is None:
        problems = _extensions.consulted(_extensions.POLICIES)
        why = next((each.problem for each in problems if each.name == name), "it is not installed")
        raise JobSpecError(f"the policy {name!r} cannot be used: {why}")
    return found


def outside_policies() -> dict[str, Policy]:
    """Return the policies that other distributions add, by name."""
    return _extensions.extensions(_extensions.POLICIES, _POLICIES, _named_alike)


def policy_at(text: str) -> Policy:
    """Return the policy that "package.module:Name" names.

    Raises:
        ExtensionError: If there is none, or it cannot be used.
    """
    policy = _usable(_extensions.named_object(text))
    if policy.name in _POLICIES:
        raise ExtensionError(
            f"the name of {text} must be none of Zeus's own ({', '.join(_POLICIES)}), "
            f"but is {policy.name!r}"
        )
    return policy


def _named_alike(name: str, found: Any) -> Policy:
    policy = _usable(found)
    if policy.name != name:
        raise ExtensionError(f"`name` must be that of its entry point, but is {policy.name!r}")
    return policy


def _usable(found: Any) -> Policy:
    try:
        policy = found() if isinstance(found, type) else found
    except Exception as error:  # of code that is not ours
        what = f"{found.__name__}() failed: {type(error).__name__}: {error}"
        raise ExtensionError(what) from error
    if not isinstance(policy, Policy) or not isinstance(getattr(policy, "name", None), str):
        raise ExtensionError(f"it must be a Policy with a `name`, but is {shown(found)}")
    return policy
