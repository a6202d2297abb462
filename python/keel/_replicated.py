"""DTensors, as torch's own svd takes them: every process computes the whole result."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Callable

from torch import Tensor
from torch.utils._pytree import tree_map


def is_distributed(value: Any) -> bool:
    return type(value).__name__ == "DTensor"  # without an import that takes longer than keel's


def replicated(operator: Callable[..., Any], *arguments: Any) -> Any:
    """``operator`` of each process's copy of the arguments. Its results are DTensors with Replicate placements."""
    tensor = import_module("torch.distributed.tensor")
    mesh = arguments[0].device_mesh
    placements = [tensor.Replicate()] * mesh.ndim

    def local(argument: Any) -> Any:
        if not is_distributed(argument):
            if isinstance(argument, Tensor):
                raise TypeError(f"{operator}: expected all tensors to be DTensors or none, got a DTensor and a tensor")
            return argument
        return argument.redistribute(mesh, placements).to_local(grad_placements=placements)

    results = operator(*map(local, arguments))
    return tree_map(lambda result: tensor.DTensor.from_local(result, mesh, placements, run_check=False), results)
