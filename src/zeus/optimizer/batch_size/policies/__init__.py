"""What decides: policies that choose the batch size of the next trial, behind one interface.

`_base.py` states the interface, each policy has a module (`_zeus.py`, `_paper.py`, `_grid.py`,
`_default.py`), `_registry.py` lists them, and `_job_state.py` applies one to the log of a job.
"""
