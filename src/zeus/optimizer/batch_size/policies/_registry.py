"""The policies that a job may name."""

from __future__ import annotations

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
    """Return the policy that `JobSpec.policy` names; policy objects are stateless."""
    return _POLICIES[name]
