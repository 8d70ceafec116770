"""Writes a tokenizer of bytes, so that load generators need not download one: `FOLDER`."""

from __future__ import annotations

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = "<|end|>"

bytes_ = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
tokenizer = Tokenizer(models.BPE({each: number for number, each in enumerate(bytes_)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
whole = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END
)
whole.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
whole.save_pretrained(sys.argv[1])
