"""One lane, played by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import ALL, Choices, JobBatch, Trials
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.policies._base import FirstEpochs
from zeus.optimizer.batch_size.policies._registry import policy_named


class Lane:
    """A job whose runs end as a test says."""

    def __init__(self, policy: str, sizes: tuple[int, ...], default: int, **options: Any) -> None:
        self.spec = JobSpec(
            name="lane",
            batch_sizes=sizes,
            default_batch_size=default,
            target_metric=1.0,
            policy=policy,
            power_limits=(100.0, 200.0),
            **options,
        )
        self.policy = policy_named(policy)
        self.state = self.policy.begin(JobBatch.of([self.spec]), 2)

    def choose(self, attempt: int = 0, gpu: int = 0) -> Choices:
        """What the policy wants."""
        return self.policy.choose(self.state, ALL, np.array([gpu]), np.array([attempt]))

    def size(self, choices: Choices) -> int:
        """The batch size that was chosen."""
        return self.spec.batch_sizes[int(choices.arm[0])]

    def begin(self, attempt: int = 0, gpu: int = 0) -> Choices:
        """Decide, and let the trial begin."""
        choices = self.choose(attempt, gpu)
        self.policy.decided(self.state, ALL, choices)
        return choices

    def note(self, choices: Choices, epoch_cost: float, load: float = 1.0, gpu: int = 0) -> None:
        """Let its first epoch tell what one costs."""
        notes = FirstEpochs(choices.arm, np.array([gpu]), np.array([epoch_cost]), np.array([load]))
        self.policy.noted(self.state, ALL, notes)

    def measure(self, costs: dict[int, float], gpu: int = 0) -> None:
        """Let some steps with every batch size tell what an epoch costs."""
        cost = np.array([[costs.get(size, np.nan) for size in self.spec.batch_sizes]])
        self.policy.measured(self.state, ALL, np.array([gpu]), cost, np.ones_like(cost))

    def end(
        self,
        choices: Choices,
        epochs: float,
        *,
        converged: bool = True,
        void: bool = False,
        unfit: bool = False,
        epoch_cost: float = 10.0,
        load: float = 1.0,
        full_power: float = 1.0,
        profiling: float = 0.0,
        gpu: int = 0,
    ) -> None:
        """Let it end.

        An epoch at the highest power limit costs `full_power` times as much, and profiling costs
        so many epochs.
        """
        trials = Trials(
            arm=choices.arm,
            role=choices.role,
            power=np.maximum(choices.power, 0) if self.spec.policy == "grid" else choices.power,
            gpu=np.array([gpu]),
            converged=np.array([converged]),
            void=np.array([void]),
            unfit=np.array([unfit]),
            epochs=np.array([float(epochs)]),
            cost=np.array([(epochs + profiling) * epoch_cost]),
            epoch_cost=np.array([epoch_cost if epochs else np.nan]),
            load=np.array([load]),
            full_cost=np.array([(epoch_cost if epochs else np.nan) * full_power]),
        )
        self.policy.ended(self.state, ALL, trials)

    def run(self, epochs: float, attempt: int = 0, **outcome: Any) -> int:
        """A whole trial; its batch size."""
        choices = self.begin(attempt, outcome.get("gpu", 0))
        self.end(choices, epochs, **outcome)
        return self.size(choices)
