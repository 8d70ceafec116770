"""Running plans: a client in every rank of a training job, and what a server knows of the job.

`client.py` is what a training script holds. It watches one step (`phases.py`), measures its
instructions at ever lower clocks (`walk.py`, `meter.py`), tells the server (`link.py`), and sets
clocks (`clocks.py`). `job.py` has the rules of a job, `planning.py` makes the plan of what was
told, `service.py` keeps jobs in a store; `remote.py` asks a server the same.
"""
