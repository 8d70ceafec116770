"""Identity of a run that its scheduler may start again: after a preemption, or a lost node.

Both starts are one trial. A scheduler says in environment variables which run a process belongs to,
and whether it was started before; a user may state it, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from zeus.errors import RunError
from zeus.optimizer.batch_size.job import _values as values

VARIABLE = "ZEUS_RUN_ID"


@dataclass(frozen=True)
class RunId:
    """A run that may be started several times.

    Attributes:
        name: The same for every start of the run, and no other run at the same time.
        restarted: Whether it may have been started before, so that its trial is to go on.
        stated: Whether the user has stated it.
        crash_restarts: Whether its launcher starts it again after a crash.
    """

    name: str
    restarted: bool
    stated: bool = False
    crash_restarts: bool = False

    @classmethod
    def find(
        cls, stated: str | None = None, environment: Mapping[str, str] | None = None
    ) -> RunId | None:
        """Return the identity of this process's run; `None` if it has none.

        Args:
            stated: Name as stated by the user; by default `ZEUS_RUN_ID`. Without either, that of
                the Slurm job or of the run of `torchrun --rdzv-id`, whose trial goes on only if
                they say that it was started again: several runs may share a Slurm job.
            environment: By default that of this process.

        Raises:
            RunError: If the stated name breaks its rule.
        """
        found = os.environ if environment is None else environment
        restarts = _count(found, "TORCHELASTIC_RESTART_COUNT")
        again = restarts < _count(found, "TORCHELASTIC_MAX_RESTARTS")
        name = stated or found.get(VARIABLE)
        if name:
            values.NAME.check("run_id", name, RunError)
            return cls(name, restarted=True, stated=True, crash_restarts=again)
        job = found.get("SLURM_JOB_ID")
        if job:
            parts = (found.get("SLURM_CLUSTER_NAME"), job, found.get("SLURM_STEP_ID"))
            restarts += _count(found, "SLURM_RESTART_COUNT")
            name = "slurm " + " ".join(part for part in parts if part)
            return cls(name, restarted=restarts > 0, crash_restarts=again)
        elastic = found.get("TORCHELASTIC_RUN_ID", "none")
        if elastic in ("", "none"):  # as `torchrun` calls it without --rdzv-id
            return None
        return cls(f"torchrun {elastic}", restarted=restarts > 0, crash_restarts=again)

    def outlives(self, error: BaseException) -> bool:
        """Return whether the run is expected to be started again after an exception.

        Args:
            error: The exception that ended this process. `SystemExit` is how programs leave that
                handle SIGTERM.
        """
        if isinstance(error, SystemExit):
            return self.stated
        return self.crash_restarts and isinstance(error, Exception)


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else 0
