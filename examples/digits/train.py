"""Train a small network to read handwritten digits until it is right in 97 of 100 cases.

`zeus run --job-file JOB.toml -- python train.py --batch-size {batch_size}` does so night after
night and learns which batch size, with its best power limit, costs least.

What is real: the data (scikit-learn's 1,797 digits), the network, its learning, and so how many
epochs each batch size takes. What is simulated: the GPU. The network is too small for one, so each
step is accompanied by a step of a simulated GPU (in virtual time, so that nobody waits) that takes
128 ms and another 4 ms per image, as a network some thousand times larger might: small batches
leave a GPU idle. The simulated GPU has the power limits, clocks and energy counters of a V100.
"""

from __future__ import annotations

import argparse
import os

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

from zeus.monitor import ZeusMonitor
from zeus.optimizer import BatchSizeOptimizer
from zeus.testing import SimulatedNode, Workload

TRAINING = 1437  # of the 1,797 images
# Tuned for the default batch size, 256: half of it takes 60 % more epochs, twice as much about as
# many.
LEARNING_RATE = 0.4


def step(images: int) -> Workload:
    """What a training step with so many images does to the GPU."""
    # Kernels are launched one by one, and the more images, the more of the GPU they keep busy.
    return Workload("step", gpu_time=0.004 * images, host_time=0.128, activity=1.0)


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True)
    batch_size = parser.parse_args().batch_size
    torch.set_num_threads(1)  # the network is tiny

    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
    everything = TensorDataset(pixels, torch.tensor(digits.target))
    parts = [TRAINING, len(everything) - TRAINING]
    train_set, eval_set = random_split(everything, parts, torch.Generator().manual_seed(0))

    # Every recurrence starts from other weights and shuffles otherwise, as in real life.
    recurrence, attempt = (int(os.environ[f"ZEUS_{name}"]) for name in ("RECURRENCE", "ATTEMPT"))
    torch.manual_seed(100 * recurrence + attempt)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    with (
        SimulatedNode(os.environ.get("ZEUS_SIMULATE") or "v100") as node,  # on real GPUs: nothing
        BatchSizeOptimizer(ZeusMonitor()) as optimizer,  # finds its trial in the environment
    ):
        assert batch_size == optimizer.get_batch_size()
        local = optimizer.local_batch_size  # the same, unless gradients are to be accumulated
        learning_rate = LEARNING_RATE * optimizer.learning_rate_scale
        sgd = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
        share = local * optimizer.accumulation_steps  # of this process, in each batch
        train_loader = DataLoader(train_set, share, shuffle=True, drop_last=True)
        eval_loader = DataLoader(eval_set, 360)

        optimizer.on_train_begin()
        while not optimizer.training_finished:
            optimizer.on_epoch_begin()
            for x, y in train_loader:
                optimizer.on_step_begin()
                sgd.zero_grad()
                for images, labels in zip(x.split(local), y.split(local), strict=True):
                    loss = torch.nn.functional.cross_entropy(model(images), labels)
                    (loss / optimizer.accumulation_steps).backward()
                    step(local).run(node.gpus)
                sgd.step()
                optimizer.on_step_end()
            optimizer.on_epoch_end()
            with torch.no_grad():
                right = sum((model(x).argmax(1) == y).sum().item() for x, y in eval_loader)
            optimizer.on_evaluate(right / len(eval_set))
        print(f"{optimizer.outcome} after {len(optimizer.history)} epochs", flush=True)


if __name__ == "__main__":
    main()
