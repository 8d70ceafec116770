"""A training run in its processes: what the optimizers that act inside one have in common.

`_training_run.py` is a run with a target, its epochs and their cost; `_training_meter.py` adds up
its windows; `_rendezvous.py` finds out whether all processes of a job take part, and in `_ranks.py`
they agree; `_knobs.py` and `_knob_controller.py` know which GPU knobs can be set, and set them
under holds; `_profiles.py` keeps profiles for the next run.
"""
