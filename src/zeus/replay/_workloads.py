"""The six workloads of the Zeus paper (Table 1), as they are named in the traces, and ours."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeus.errors import TraceError
from zeus.replay._traces import Key


@dataclass(frozen=True)
class Workload:
    """A model trained on a data set to a target.

    Attributes:
        name: Name on the command line.
        title: Name in the paper.
        dataset: Name in the traces, as are `network` and `optimizer`.
        default_batch_size: Batch size of the original publication.
        target_metric: Target value.
        metric: Name of the metric, with its unit.
        max_epochs: Maximum epochs of a run.
        higher_is_better: Whether the metric rises.
        learning_rate: Learning rate of the default batch size, where the trace has several; `None`
            accepts all.
        scales: Whether the learning rate scales with the square root of the batch size.
    """

    name: str
    title: str
    dataset: str
    network: str
    optimizer: str
    default_batch_size: int
    target_metric: float
    metric: str
    max_epochs: int
    higher_is_better: bool = True
    learning_rate: float | None = None
    scales: bool = False

    @property
    def key(self) -> Key:
        """Key of the workload in the traces."""
        return self.dataset, self.network, self.optimizer

    def admits(self, batch_size: int, learning_rate: float) -> bool:
        """Return whether a run with this learning rate belongs to the workload."""
        if self.learning_rate is None:
            return True
        scale = math.sqrt(batch_size / self.default_batch_size) if self.scales else 1.0
        # The traces round to three digits.
        return math.isclose(learning_rate, self.learning_rate * scale, rel_tol=0.01)


WORKLOADS = (
    Workload(
        "deepspeech2", "DeepSpeech2", "librispeech", "deepspeech2", "adamw",
        192, 40.0, "WER (%)", 16, higher_is_better=False,
    ),
    Workload("bert_qa", "BERT (QA)", "squad", "bert_base_uncased", "adamw", 32, 84.0, "F1", 6),
    Workload(
        "bert_sa", "BERT (SA)", "sentiment140", "bert_base_uncased", "adamw",
        128, 0.84, "accuracy", 10, learning_rate=4e-7, scales=True,
    ),
    Workload(
        "resnet50", "ResNet-50", "imagenet", "resnet50", "adadelta", 256, 0.65, "accuracy", 100
    ),
    Workload(
        "shufflenetv2", "ShuffleNet-v2", "cifar100", "shufflenetv2", "adadelta",
        1024, 0.6, "accuracy", 100, learning_rate=0.1,
    ),
    Workload("neumf", "NeuMF", "movielens-1m", "ncf", "adam", 1024, 0.41, "NDCG", 100),
)  # fmt: skip
"""Those of the paper."""
MADE_UP = Workload("made-up", "Made-up job", "none", "none", "none", 1024, 0.7, "accuracy", 60)
"""The job of `_example.py`."""
ALL_WORKLOADS = (*WORKLOADS, MADE_UP)


def workload_named(name: str) -> Workload:
    """Find a workload by its name, its title, or its dataset or network in the traces.

    Raises:
        TraceError: If no workload has this name, or several have.
    """
    wanted = _letters(name)
    for workload in ALL_WORKLOADS:
        if wanted in (_letters(workload.name), _letters(workload.title)):
            return workload
    found = [w for w in ALL_WORKLOADS if wanted in (_letters(w.dataset), _letters(w.network))]
    if len(found) == 1:
        return found[0]
    known = ", ".join(workload.name for workload in ALL_WORKLOADS)
    raise TraceError(f"there is no workload {name!r}; there are {known}")


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
