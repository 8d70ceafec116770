"""A language model in a few lines: which word follows which, counted in Python's own reference.

It interpolates the counts of the last few words (stupid backoff), and repeats words of the prompt
more often, so that its answers have to do with the question. Trained in a second or two.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_']*|[0-9]+|[.,;:!?]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_END = "."
_CLOSING = frozenset(".,;:!?")
_MIN_WORDS = 4  # of a sentence that is learned from
_PROMPTED = 3.0  # weight of words that are in the prompt
_SENTENCES = (2, 5)  # of an answer


class WordModel:
    """Predicts the next word from the last ones.

    Args:
        text: Text to learn from.
        order: Number of last words that are taken into account.
    """

    def __init__(self, text: str, order: int = 3) -> None:
        self._order = order
        self._following: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for sentence in _SENTENCE.split(" ".join(text.split())):
            words = tokens(sentence)
            if len(words) < _MIN_WORDS or not sentence[:1].isupper() or words[-1] != _END:
                continue
            padded = ["", *words]
            for place in range(1, len(padded)):
                for length in range(min(order, place) + 1):
                    context = tuple(padded[place - length : place])
                    self._following[context][padded[place]] += 1

    def generate(self, prompt: str, limit: int, seed: int) -> Iterator[str]:
        """Yield the pieces of an answer, words with the space before them.

        Args:
            prompt: The prompt.
            limit: Maximum number of pieces.
            seed: The same seed gives the same answer.
        """
        chance = random.Random(seed)
        asked = {word.lower() for word in tokens(prompt) if len(word) > 3}
        sentences = chance.randint(*_SENTENCES)
        said: list[str] = [""]
        for number in range(limit):
            word = self._next(said, asked, chance)
            said.append(word)
            yield word if word in _CLOSING or not number else f" {word}"
            if word == _END:
                sentences -= 1
                said = [""]
            if not sentences:
                return

    def _next(self, said: Sequence[str], asked: set[str], chance: random.Random) -> str:
        for length in range(min(self._order, len(said)), -1, -1):
            counts = self._following.get(tuple(said[len(said) - length :]))
            # A context that was seen once would only quote.
            if counts and (len(counts) > 1 or length <= 1):
                words = list(counts)
                weights = [
                    counts[word] * (_PROMPTED if word.lower() in asked else 1.0) for word in words
                ]
                return chance.choices(words, weights)[0]
        return _END


def tokens(text: str) -> list[str]:
    """Return the words and punctuation marks of a text."""
    return _TOKEN.findall(text)


def reference_text() -> str:
    """Return the text that comes with Python: its language reference."""
    from pydoc_data import topics  # noqa: PLC0415  (half a megabyte)

    return "\n\n".join(str(each) for each in topics.topics.values())
