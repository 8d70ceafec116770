"""Record what a drifting job would take: train on 38 slices of a stream, at every batch size.

The data are scikit-learn's 1,797 handwritten digits, each seen three times in a stream of 5,391.
Along the stream labels get less and less reliable (two thirds are random at the worst) and recover,
as labels do that are clicked by people or guessed by another model. A slice is a window of 1,500
images; the next begins 105 images later. It is split into 1,200 to train with and 300 whose labels
were checked, and training goes on until 83 of 100 of those are read rightly.

What is real: the data, the networks, their learning, and so the epochs of each batch size. What is
simulated is the GPU (in virtual time, through `zeus.testing`): a step takes 4 ms and another 4 ms
per image, with the power limits, clocks and energy counters of a V100.

    python -m paper.drift.record --output traces

writes the files of the folder `traces` again. All networks of a batch size, one for each slice and
run, are trained side by side as one stack, which takes some minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from zeus.monitor import ZeusMonitor
from zeus.testing import SimulatedNode, Workload

SLICES, RUNS = 38, 5
STREAM, WINDOW, TRAINING = 3 * 1797, 1500, 1200
RANDOM_LABELS = 0.68  # share at the worst place of the stream
BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512)
LEARNING_RATE = 0.1  # of every batch size
HIDDEN, CLASSES, PIXELS = 64, 10, 64
TARGET, MAX_EPOCHS = 0.83, 30
POWER_LIMITS = range(100, 251, 25)  # watts


def stream(random: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images in the order in which they arrive, the labels they come with, and the true ones."""
    digits = load_digits()
    order = np.concatenate([random.permutation(1797) for _ in range(3)])
    true = digits.target[order]
    unreliable = RANDOM_LABELS * np.sin(np.pi * np.arange(STREAM) / (STREAM - 1)) ** 2
    guessed = random.random(STREAM) < unreliable
    labels = np.where(guessed, random.integers(0, CLASSES, STREAM), true)
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32)
    return images, torch.tensor(labels), torch.tensor(true)


def slices(random: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """Images and labels to train with, and to check with, by slice."""
    images, labels, true = stream(random)
    parts: list[tuple[torch.Tensor, ...]] = []
    for start in np.linspace(0, STREAM - WINDOW, SLICES).round().astype(int):
        order = torch.tensor(start + random.permutation(WINDOW))
        train, check = order[:TRAINING], order[TRAINING:]
        parts.append((images[train], labels[train], images[check], true[check]))
    return tuple(torch.stack(part) for part in zip(*parts, strict=True))


def train(data: tuple[torch.Tensor, ...], batch_size: int) -> np.ndarray:
    """Epochs until the target, by slice and run; infinite where it was never reached."""
    images, labels, check_images, check_labels = data
    generator = torch.Generator().manual_seed(batch_size)
    stack = len(images) * RUNS

    def layer(inputs: int, outputs: int) -> list[torch.Tensor]:
        bound = 1 / math.sqrt(inputs)
        weights = torch.rand(stack, inputs, outputs, generator=generator) * 2 - 1
        offsets = torch.rand(stack, 1, outputs, generator=generator) * 2 - 1
        return [(bound * each).requires_grad_() for each in (weights, offsets)]

    parameters = [*layer(PIXELS, HIDDEN), *layer(HIDDEN, CLASSES)]

    def network(x: torch.Tensor) -> torch.Tensor:
        first, first_offset, second, second_offset = parameters
        return torch.relu(x @ first + first_offset) @ second + second_offset

    sgd = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9)
    own = torch.arange(len(images)).repeat_interleave(RUNS)
    reached = np.full(stack, np.inf)
    for epoch in range(1, MAX_EPOCHS + 1):
        order = torch.rand(stack, TRAINING, generator=generator).argsort(dim=1)
        for batch in order.split(batch_size, dim=1)[: TRAINING // batch_size]:
            sgd.zero_grad()
            guess = network(images[own[:, None], batch])
            # Summed over the stack: every network has its own mean over its own batch.
            loss = torch.nn.functional.cross_entropy(
                guess.reshape(-1, CLASSES),
                labels[own[:, None], batch].reshape(-1),
                reduction="sum",
            )
            (loss / batch_size).backward()
            sgd.step()
        with torch.no_grad():
            right = network(check_images[own]).argmax(2) == check_labels[own]
        accuracy = right.float().mean(dim=1).numpy()
        reached = np.where(np.isinf(reached) & (accuracy >= TARGET), epoch, reached)
        if np.isfinite(reached).all():
            break
    return reached.reshape(-1, RUNS)


def step(images: int) -> Workload:
    """What a training step with so many images does to the GPU."""
    return Workload("step", gpu_time=0.004 * images, host_time=0.004, activity=1.0)


def measure(batch_size: int, power_limit: float) -> tuple[float, float]:
    """Seconds of an epoch, and its average power in watts."""
    with SimulatedNode("v100") as node, node.gpus[0].hold(power_limit=power_limit):
        monitor = ZeusMonitor()
        monitor.begin_window("epoch")
        step(batch_size).run(node.gpus, TRAINING // batch_size)
        measured = monitor.end_window("epoch")
        monitor.settle()
    return measured.time, measured.total_energy / measured.time


def main() -> None:
    """Record both traces."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path("traces"), metavar="DIR")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the networks are tiny

    data = slices(np.random.default_rng(0))
    columns = ["dataset", "network", "batch_size", "optimizer"]
    with (folder / "summary_train.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*columns, "learning_rate", "run", "target_metric", "target_epoch"])
        for batch_size in BATCH_SIZES:
            epochs = train(data, batch_size)
            print(f"batch size {batch_size}: {np.isfinite(epochs).mean():.0%} reach the target")
            for place, runs in enumerate(epochs):
                for run, epoch in enumerate(runs):
                    shown = "" if math.isinf(epoch) else int(epoch)
                    name = f"digits-{place:02d}"
                    writer.writerow(
                        [name, "mlp", batch_size, "sgd", LEARNING_RATE, run, TARGET, shown]
                    )
    with (folder / "summary_power_v100.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*columns, "power_limit", "time_per_epoch", "average_power"])
        for batch_size in BATCH_SIZES:
            for limit in POWER_LIMITS:
                time, power = measure(batch_size, limit)
                writer.writerow(
                    ["digits", "mlp", batch_size, "sgd", limit, f"{time:.4f}", f"{power:.2f}"]
                )


if __name__ == "__main__":
    main()
