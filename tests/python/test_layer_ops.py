"""The layers' operators under torch's own checkers."""

import pytest
import torch

import keel  # noqa: F401  (registers the operators)
from support import correlated

ops = torch.ops.keel
MAP = "zca(rank=full)"  # has second derivatives, which gradients beside tangents need
opcheck = getattr(torch.library, "opcheck", None)


def samples():
    x = correlated(5, 6, 4).requires_grad_()
    last = correlated(3, 6, 2, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
    half = correlated(5, 6, 4, dtype=torch.float32).bfloat16()
    numbers = torch.randn(6, dtype=torch.double, requires_grad=True)
    matrix = torch.randn(2, 3, 3, dtype=torch.double, requires_grad=True)
    cov = (matrix @ matrix.mT).detach().requires_grad_()
    for input in (x, last, half):
        yield ops.moments, (input, 2)
        yield ops.affine, (input, matrix, numbers, numbers)
        yield ops.affine, (input, matrix, numbers, numbers, True)
    yield ops.affine, (x, matrix.detach())
    for map in ("zca", "pca_denoising", "pca_whitening"):
        yield ops.layer_matrix, (cov, f"{map}(rank=leading_count(count=2))", "taylor(terms=9)")
        for input in (x, last):
            by_energy = f"{map}(rank=leading_energy(fraction=0.9))"
            yield ops.whiten_forward, (input, numbers, numbers, 2, by_energy, "exact")
            for ending in ((True,), (True, input.detach())):  # relu, residual
                yield ops.whiten_forward, (input, numbers, numbers, 2, by_energy, "exact", *ending)
        yield ops.whiten_forward, (half, None, None, 1, f"{map}(rank=full)", "power_iteration")
    weight = numbers.detach()
    for input in (x.detach(), last.detach(), half):  # what has no derivative
        _, *state = ops.whiten_forward(input, weight, None, 2, "zca")
        sums = ops.partial_moments(input, 2)
        backward = ops.whiten_backward_sums(input, input, *state)[0]
        yield ops.partial_moments, (input, 2, weight)
        yield ops.whiten_apply, (input, weight, None, 2, sums, None, "zca")
        yield ops.whiten_backward, (input, input, weight, *state, "zca")
        yield ops.whiten_backward, (input, input, weight, *state, "zca", "exact", input)
        yield ops.whiten_backward_sums, (input, input, *state)
        yield ops.whiten_backward_sums, (input, input, *state, input)
        yield ops.whiten_backward_apply, (
            input, input, weight, *state, backward, sums[:1].clone(), "zca",
        )  # fmt: skip


@pytest.mark.skipif(
    opcheck is None, reason=f"torch {torch.__version__} has no torch.library.opcheck"
)
def test_operators_pass_opcheck():
    for operator, arguments in samples():
        opcheck(operator.default, arguments)


@pytest.mark.skipif(
    opcheck is None, reason=f"torch {torch.__version__} has no torch.library.opcheck"
)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_track_passes_opcheck(momentum):
    batch = torch.randn(6), torch.rand(2, 3, 3), torch.randn(2, 3, 3)
    count = torch.tensor(3)
    for variance in (torch.ones(6), None):
        running = torch.zeros(6), torch.zeros(2, 3, 3), variance
        opcheck(ops.running_average.default, (*running, count, *batch, momentum, 1e-4))


def test_meta_tensors_give_the_shapes_types_and_strides_of_real_ones():
    for operator, arguments in samples():
        meta = [a.detach().to("meta") if isinstance(a, torch.Tensor) else a for a in arguments]
        real, shapes = operator(*arguments), operator(*meta)
        if isinstance(real, torch.Tensor):
            real, shapes = (real,), (shapes,)
        for a, b in zip(real, shapes):
            assert b.is_meta
            assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride()), operator
