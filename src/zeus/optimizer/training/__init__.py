"""A training run in its processes: what the optimizers that act inside one have in common.

`_training_run.py` is a run with a target, its epochs and their cost; `_ranks.py` how the processes
of a job agree; `_knobs.py` and `_knob_controller.py` which GPU knobs can be set, and set them under
holds; `_profiles.py` keeps profiles for the next run.
"""
