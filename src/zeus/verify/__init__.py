"""Checks of what is known about GPUs by publication only, on the GPUs of this machine.

Zeus measures with models of sensors and knobs of each product (the *presets*). `zeus verify` finds
the same values on the hardware at hand, without using what it expects: sensors are polled densely
while a synthetic load runs, and their refreshes and responses are fitted. Each value is compared
with the preset, in the terminal and in a file that can be shared.
"""
