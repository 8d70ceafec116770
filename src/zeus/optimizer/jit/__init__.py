"""Just-in-time profiling: try settings of a GPU knob while training goes on, then keep the best.

What to try next is decided by pure generators (`walk`, `watch`) that yield stretches of steps and
are sent what these took; `optimizer` runs the stretches inside the training loop. So the decisions
are the same in every process of a job, and can be tested without any.
"""
