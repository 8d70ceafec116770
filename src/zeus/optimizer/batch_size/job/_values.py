"""Rules for single values of recurring jobs: of their log, and of the requests of clients.

The bounds are far beyond any training run. They keep clients from filling the store, and values
in the range in which their sums and products stay finite.
"""

from __future__ import annotations

from typing import Annotated

from zeus._rules import Note, Number, Text, Texts, Whole

MAX_NAME = 200  # characters of a name: of a job, a GPU model, a request
MAX_NOTE = 2_000  # characters
MAX_SECONDS = 1e9  # of one epoch
MAX_JOULES = 1e15  # of one epoch
MAX_WATTS = 1e9
MAX_METRIC = 1e150
MAX_GPUS = 1_000_000
MAX_BYTES = 2**50  # of one GPU's memory
MAX_BATCH_SIZE = 2**31 - 1
MAX_EPOCHS = 1_000_000
MIN_LEASE, MAX_LEASE = 1.0, 30 * 86400.0  # seconds
DEFAULT_LEASE = 600.0

MAX_TAGS, MAX_TAG = 32, 64  # tags of a job; characters of one

NAME = Text(MAX_NAME)
TAGS = Texts(Text(MAX_TAG), MAX_TAGS)
BATCH_SIZE = Whole(1, MAX_BATCH_SIZE)
WATTS = Number(0.0, MAX_WATTS, above=True)

Name = Annotated[str, NAME]
Tags = Annotated[tuple[str, ...], TAGS]
Words = Annotated[str, Note(MAX_NOTE, 100_000)]
Count = Annotated[int, Whole(1, 2**53)]
Gpus = Annotated[int, Whole(1, MAX_GPUS)]
Bytes = Annotated[int, Whole(1, MAX_BYTES)]
BatchSize = Annotated[int, BATCH_SIZE]
Epochs = Annotated[int, Whole(1, MAX_EPOCHS)]
Steps = Annotated[int, Whole(1, 2**53)]
Duration = Annotated[float, Number(0.0, MAX_SECONDS, above=True)]
Seconds = Annotated[float, Number(0.0, MAX_SECONDS)]
Joules = Annotated[float, Number(0.0, MAX_JOULES)]
Watts = Annotated[float, WATTS]
Metric = Annotated[float, Number(-MAX_METRIC, MAX_METRIC)]
Lease = Annotated[float, Number(MIN_LEASE, MAX_LEASE)]
EpochCost = Annotated[float, Number(0.0, 1e18)]
MeasuredCost = Annotated[float, Number(0.0, 1e18, above=True)]
Load = Annotated[float, Number(0.0, 1e3)]
