"""A small transformer in stages, and text for it to learn from."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LENGTH = 128, 32, 2, 32


class Layer(nn.Module):
    """Attention to what came before, and a network of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape: sample, place in the text, features."""
        parts = self.attention(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(-2))
        return x + self.network(x)


class Stage(nn.Module):
    """Some layers; the first stage also embeds, the last also predicts."""

    def __init__(self, layers: int, first: bool, last: bool) -> None:
        super().__init__()
        if first:
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
        if last:
            self.head = nn.Linear(WIDTH, VOCABULARY)
        self.first, self.last = first, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From tokens (first stage) or activations to activations or logits (last stage)."""
        if self.first:
            x = self.tokens(x) + self.positions
        x = self.layers(x)
        return self.head(x) if self.last else x

    def work(self) -> float:
        """Multiplications per token in the forward, in those of one layer."""
        layer = 12 * WIDTH**2 + 2 * LENGTH * WIDTH
        return len(self.layers) + (WIDTH * VOCABULARY / layer if self.last else 0.0)


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next character."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def batches(size: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random pieces of text that is at hand everywhere: the source of a Python module."""
    text = inspect.getsource(argparse).encode("ascii", "ignore")
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    numbers = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - LENGTH, (size,), generator=numbers)
        pieces = torch.stack([data[start : start + LENGTH + 1] for start in starts])
        yield pieces[:, :-1], pieces[:, 1:]
