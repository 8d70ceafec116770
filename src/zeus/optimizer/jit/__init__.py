"""Just-in-time profiling: try settings of a GPU knob during training, then keep the best.

Pure generators (`_setting_sweep.py`, `_drift.py`) decide what to try next: they yield segments of
steps and are sent the time and energy of these; `_runner.py` runs the segments inside the training
loop. So the decisions are the same in every process of a job, and can be tested without processes.
"""
