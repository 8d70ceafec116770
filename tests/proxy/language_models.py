"""Two language models of our own, one ten times as large, trained in seconds on Python's reference.

They are in the form that Hugging Face's programs load. Run as a program, it is given the folder
to write them to: `large` and `small`, each with the tokenizer.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from zeus.arena.demo._words import reference_text

SIZES = {"large": (128, 3), "small": (64, 1)}  # width, layers
_WORDS, _END = 1000, "<|end|>"
_STEPS, _BATCH, _LENGTH, _RATE = 120, 16, 32, 0.01
_CHAT = "{% for message in messages %}{{ message.content }} {% endfor %}"  # without turns


def tokenizer_of(text: str) -> PreTrainedTokenizerFast:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_WORDS,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    found.train_from_iterator([text], trainer)
    whole = PreTrainedTokenizerFast(tokenizer_object=found, eos_token=_END, pad_token=_END)
    whole.chat_template = _CHAT
    return whole


def trained(tokens: list[int], width: int, layers: int) -> tuple[LlamaForCausalLM, float]:
    """Return a model and its last loss, in nats per token."""
    torch.manual_seed(1)
    chosen = LlamaConfig(
        vocab_size=_WORDS,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(chosen)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95))
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, _STEPS, pct_start=0.2)
    dice, loss = random.Random(1), torch.tensor(0.0)
    for _ in range(_STEPS):
        starts = [dice.randrange(len(tokens) - _LENGTH) for _ in range(_BATCH)]
        batch = torch.tensor([tokens[start : start + _LENGTH] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
    return model.eval(), loss.item()


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    text = " ".join(reference_text().split())
    tokenizer = tokenizer_of(text)
    tokens = tokenizer(text)["input_ids"]
    for name, (width, layers) in SIZES.items():
        model, loss = trained(tokens, width, layers)
        print(name, model.num_parameters(), f"{loss:.2f}")
        model.generation_config.do_sample = True
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
