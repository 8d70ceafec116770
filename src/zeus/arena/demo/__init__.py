"""Two small models for `zeus arena --demo`, on a machine without a GPU.

SmolLM2 runs in llama.cpp's server; beside it is a model of our own, trained at the start on text
that comes with Python. Each has a process of its own with an OpenAI-compatible server
(`python -m zeus.arena.demo NAME`). Their energy is that of simulated GPUs.
"""
