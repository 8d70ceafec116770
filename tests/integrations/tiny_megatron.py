"""An engine in the style of Megatron-LM's `schedules.py`: one rank that sends to itself.

Functions of the module, found by name when they are called; the parts of the model are numbered in
the forward's arguments only; a backward is given what its forward returned.
"""

from __future__ import annotations

log: list = []


class Tensor:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        raise TypeError("tensors are compared element by element")

    __hash__ = None  # type: ignore[assignment]


def forward_step(  # noqa: PLR0917  (as many as there)
    forward_step_func,
    data_iterator,
    model,
    num_microbatches,
    input_tensor,
    forward_data_store,
    config,
    cp_group_size=1,
    current_microbatch=None,
    vp_stage=None,
):
    given = next(data_iterator) if input_tensor is None else input_tensor.value
    output = Tensor(forward_step_func(given, model))
    forward_data_store.append(output.value)
    # With several inputs there are several outputs, in a list.
    return ([output] if config.get("lists") else output), 1


def backward_step(input_tensor, output_tensor, output_tensor_grad, config):
    if config.get("fails"):
        raise ArithmeticError("a backward that fails")
    output = output_tensor[0] if isinstance(output_tensor, list) else output_tensor
    return Tensor(output.value * 2)


def forward_backward_pipelining_without_interleaving(
    *, forward_step_func, data_iterator, model, num_microbatches, config, forward_only=False
):
    """GPipe, to be short."""
    store: list = []
    outputs: list = []
    for microbatch in range(num_microbatches):
        log.append("receive")
        output, _ = forward_step(
            forward_step_func, data_iterator, model[0] if isinstance(model, list) else model,
            num_microbatches, None, store, config, current_microbatch=microbatch,
        )  # fmt: skip
        outputs.append(output)
        log.append("send")
    for output in [] if forward_only else outputs:
        log.append("receive")
        backward_step(None, output, None, config)
        log.append("send")
    return store


def forward_backward_pipelining_with_interleaving(
    *, forward_step_func, data_iterator, model, num_microbatches, config, forward_only=False
):
    store: list = []
    outputs: list = [[] for _ in model]
    given = [None] * num_microbatches
    for chunk, part in enumerate(model):
        for microbatch in range(num_microbatches):
            output, _ = forward_step(
                forward_step_func, data_iterator, part, num_microbatches, given[microbatch],
                store, config, cp_group_size=1, current_microbatch=microbatch, vp_stage=chunk,
            )  # fmt: skip
            given[microbatch] = output
            outputs[chunk].append(output)
    for chunk in reversed(range(0 if forward_only else len(model))):
        for _ in range(num_microbatches):
            backward_step(None, outputs[chunk].pop(0), None, config)
    return store


def get_forward_backward_func(interleaved):
    if interleaved:
        return forward_backward_pipelining_with_interleaving
    return forward_backward_pipelining_without_interleaving
