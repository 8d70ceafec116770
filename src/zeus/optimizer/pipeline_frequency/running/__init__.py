"""Running plans: a client in every rank of a training job, and the server's side of the job.

`client.py` is the training script's interface. It observes steps (`phases.py`), measures their
instructions at ever lower clocks (`walk.py`, `meter.py`), reports to the server (`link.py`), and
sets clocks (`clocks.py`). `job.py` has the rules of a job, `planning.py` computes plans from the
ranks' reports, `service.py` keeps jobs in a store; `remote.py` is its HTTP client.
"""
