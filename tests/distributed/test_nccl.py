"""The way over NCCL. One GPU is a group of one, so the layer's own shortcut for it is gone round."""

import processes
import pytest
import support
import torch
from torch import distributed as dist

from keel.nn import synchronise


WHY_NOT = support.why_no_cuda() if dist.is_nccl_available() else "no NCCL"
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def _step(x, grad, synchronised):
    leaf = x.detach().requires_grad_()
    if synchronised:
        arguments = (leaf, None, None, 2, dist.group.WORLD, "zca(rank=full)", "exact")
        output = synchronise.whiten(*arguments)[0]
    else:
        output = torch.ops.keel.whiten_forward(leaf, None, None, 2, "zca(rank=full)")[0]
    return output.detach(), torch.autograd.grad(output, leaf, grad)[0]


def _batch(seed, dtype):
    x = support.correlated(20, 8, 4, 4, seed=seed, dtype=dtype).cuda()
    return x, support.correlated(20, 8, 4, 4, seed=seed + 1, dtype=dtype).cuda()


def _eager(rank, size):
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        x, grad = _batch(0, dtype)
        for found, truth in zip(_step(x, grad, True), _step(x, grad, False)):
            assert support.relative(found, truth) < tolerance
    return True


def _captured(rank, size):
    x, grad = _batch(0, torch.float32)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _step(x, grad, True)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog asks for events of its own meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        captured = _step(x, grad, True)
    x.copy_(_batch(5, torch.float32)[0])
    graph.replay()
    torch.cuda.synchronize()
    for found, truth in zip(captured, _step(x, grad, True)):
        assert torch.equal(found, truth)
    return True


@pytest.mark.parametrize("body", [_eager, _captured])
def test_over_nccl(body):
    assert processes.run(1, body, backend="nccl") == [True]
