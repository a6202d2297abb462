"""Registration of point sets: known motions, pytorch3d's formula as the peer, gradients, degenerate sets."""

import math

import pytest
import torch
from rectangles import plain_rotation

import keel

close = torch.testing.assert_close


def motion(d, batch=(4,)):
    r = keel.special_procrustes(torch.randn(*batch, d, d, dtype=torch.double))
    return r, torch.randn(*batch, d, dtype=torch.double), torch.rand(batch, dtype=torch.double) + 0.5


def moved(points, rotation, translation, scale):
    return scale[..., None, None] * (points @ rotation.mT) + translation.unsqueeze(-2)


def plain(P, Q, weights, scale):
    """As in pytorch3d's corresponding_points_alignment, for column vectors."""
    w = weights.unsqueeze(-1) / weights.sum(-1)[..., None, None]
    p_mean, q_mean = (w * P).sum(-2, keepdim=True), (w * Q).sum(-2, keepdim=True)
    p, q = P - p_mean, Q - q_mean
    covariance = (w * q).mT @ p
    r = plain_rotation(covariance)
    s = torch.ones_like(covariance[..., 0, 0])
    if scale:
        s = (r * covariance).sum((-2, -1)) / (w * p.square()).sum((-2, -1))
    t = q_mean.squeeze(-2) - s.unsqueeze(-1) * (p_mean @ r.mT).squeeze(-2)
    return r, t, s


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("p, q, w", [
    ((4,), (), None), ((), (4,), None), ((4,), (4,), ()), ((), (), (4,)), ((3, 1), (4,), (1, 4)),
    ((2, 3, 4), (1, 4), (4,)),
])  # fmt: skip
def test_batches_broadcast(p, q, w, scale):
    P, Q = (torch.randn(*batch, 6, 3, dtype=torch.double, requires_grad=True) for batch in (p, q))
    weights = None if w is None else torch.rand(*w, 6, dtype=torch.double, requires_grad=True)
    batch = torch.broadcast_shapes(p, q, w or ())
    alike = [P.expand(*batch, 6, 3), Q.expand(*batch, 6, 3), weights if w is None else weights.expand(*batch, 6)]
    inputs = [x for x in (P, Q, weights) if x is not None]
    found, expected = keel.kabsch(P, Q, weights, scale=scale), keel.kabsch(*alike, scale=scale)
    slopes = [torch.randn_like(x) for x in expected]
    for ours, theirs in zip(found, expected):
        assert ours.shape == theirs.shape
        close(ours, theirs)
    gradients = [torch.autograd.grad(outputs, inputs, slopes) for outputs in (found, expected)]
    for ours, theirs in zip(*gradients):
        close(ours, theirs)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_motions_are_found(d):
    r, t, s = motion(d)
    P = torch.randn(4, 20, d, dtype=torch.double)
    rotation, translation, scale = keel.kabsch(P, moved(P, r, t, s), scale=True)
    close((rotation, translation, scale), (r, t, s))
    rotation, translation = keel.kabsch(P, moved(P, r, t, torch.ones_like(s)))
    close((rotation, translation), (r, t))


@pytest.mark.parametrize("scale", [False, True])
def test_the_peer_where_it_is_finite(scale):
    P, Q = (torch.randn(2, 3, 7, 3, dtype=torch.double, requires_grad=True) for _ in range(2))
    w = torch.rand(2, 3, 7, dtype=torch.double, requires_grad=True)
    ours, theirs = torch.ops.keel.kabsch(P, Q, w, scale), plain(P, Q, w, scale)
    close(ours, theirs)
    outputs = 3 if scale else 2
    weights = [torch.randn_like(x) for x in ours[:outputs]]
    close(
        torch.autograd.grad(ours[:outputs], (P, Q, w), weights),
        torch.autograd.grad(theirs[:outputs], (P, Q, w), weights),
    )


def test_first_and_second_derivatives():
    r, t, s = motion(3, ())
    P = torch.randn(5, 3, dtype=torch.double)
    Q = moved(P, r, t, s) + 0.3 * torch.randn(5, 3, dtype=torch.double)
    w = torch.rand(5, dtype=torch.double) + 0.1
    inputs = [x.requires_grad_() for x in (P, Q, w)]

    def function(*points):
        return keel.kabsch(*points, scale=True)

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-4)


def test_weights():
    r, t, s = motion(3)
    P = torch.randn(4, 10, 3, dtype=torch.double)
    Q = moved(P, r, t, torch.ones_like(s))
    Q[:, 5:] += torch.randn(4, 5, 3, dtype=torch.double)  # outliers
    w = torch.ones(4, 10, dtype=torch.double)
    w[:, 5:] = 0
    close(keel.kabsch(P, Q, w), (r, t))
    close(keel.kabsch(P, Q, 1e-30 * w), (r, t))
    nothing = keel.kabsch(P, Q, 0 * w, scale=True)
    assert all(x.isfinite().all() for x in nothing)
    assert nothing[2].tolist() == [1.0] * 4
    w[1, 0] = -0.1
    for x in keel.kabsch(P, Q, w, scale=True):
        assert x[1].isnan().all() and x[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("dtype, far", [(torch.float, 100), (torch.double, 900)])
def test_sizes_whose_squares_are_no_numbers(dtype, far):
    """Points and weights times powers of two: the same rotation to the last bit, and its gradient to match."""
    P, Q = (torch.randn(5, 9, 3, dtype=dtype) for _ in range(2))
    w = torch.rand(5, 9, dtype=dtype) + 0.1
    w[:, 4:6] = 0
    expected, grads = moves_with_gradients(P, Q, w)
    for p, q, v in [(-far, -far, 0), (far, far, 0), (-far, far // 2, -far), (far, 0, far), (0, -far, far)]:
        sizes = [2.0**e for e in (p, q, v)]
        (r, t, s), found = moves_with_gradients(P * sizes[0], Q * sizes[1], w * sizes[2])
        assert torch.equal(r, expected[0])
        assert torch.equal(t / sizes[1], expected[1])
        if abs(q - p) <= far:
            assert torch.equal(s * sizes[0] / sizes[1], expected[2])
        for size, gradient, unit in zip(sizes, found, grads):
            close(gradient * size, unit)
    outlier = P.clone()
    outlier[:, 4] = 2.0 ** (far // 2)  # of no weight
    close(keel.kabsch(outlier, Q, w), keel.kabsch(P, Q, w), rtol=1e-5, atol=1e-5)


def test_points_far_from_the_origin_keep_float32s_digits():
    r, _, s = motion(3)
    near = torch.randn(4, 1000, 3, dtype=torch.double)
    P, Q = (near + 1e5).float(), (moved(near, r, torch.zeros(4, 3), s) - 1e5).float()
    for w in (torch.ones(4, 1000), torch.rand(4, 1000)):
        (rotation, translation, scale), grads = moves_with_gradients(P, Q, w)
        exact, exact_grads = moves_with_gradients(P.double(), Q.double(), w.double())
        close(rotation.double(), exact[0], rtol=0, atol=5e-6)
        close(scale.double(), exact[2], rtol=5e-6, atol=0)
        # The product of the rotation and the mean is rounded.
        close(translation.double(), exact[1], rtol=0, atol=5e-6 * 1e5)
        for grad, expected in zip(grads, exact_grads):
            assert (grad - expected).norm() < 1e-3 * expected.norm()


def test_far_points_of_no_weight_do_not_make_the_scale_nan():
    P, Q = torch.randn(5, 3), torch.randn(5, 3)
    P[1:] = 1e30  # its square is infinite
    for w in (torch.tensor([1.0, 0, 0, 0, 0]), torch.zeros(5)):
        r, t, s = keel.kabsch(P, Q, w, scale=True)
        assert s == 1 and r.isfinite().all() and t.isfinite().all()


def test_the_translation_of_tiny_points_has_its_gradient():
    half = 2.0**-120 * torch.randn(25, 3)
    P = torch.cat([half, -half]).requires_grad_()  # about zero, so that turning them moves nothing
    r, t = keel.kabsch(P, torch.randn(50, 3))
    (grad,) = torch.autograd.grad(t.sum(), P)
    close(grad, (-r.detach().sum(0) / 50).expand(50, 3), rtol=1e-5, atol=1e-6)


def moves_with_gradients(*inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    moves = keel.kabsch(*inputs, scale=True)
    return moves, torch.autograd.grad(moves[0].sum(), inputs)


def test_mirrors_are_never_returned():
    P = torch.randn(6, 9, 3)
    rotation, _ = keel.kabsch(P, P * torch.tensor([1.0, 1.0, -1.0]))
    close(torch.det(rotation), torch.ones(6))


@pytest.mark.parametrize("name", ["plane", "line", "one point", "one place"])
def test_degenerate_sets(name):
    r, t, _ = motion(3, ())
    P = torch.randn(8, 3, dtype=torch.double)
    if name == "plane":
        P[:, 2] = 0
    elif name == "line":
        P = P[:, :1] * torch.tensor([1.0, 2.0, -1.0], dtype=torch.double)
    elif name == "one point":
        P = P[:1]
    else:
        P = P[:1].expand(8, 3).clone()
    P.requires_grad_()
    Q = moved(P.detach(), r, t, torch.ones((), dtype=torch.double))
    rotation, translation, scale = keel.kabsch(P, Q, scale=True)
    close(moved(P, rotation, translation, scale), Q, check_stride=False)
    if name == "plane":
        close(rotation, r)
    loss = rotation.sum() + translation.sum() + scale
    (grad,) = torch.autograd.grad(loss, P)
    assert grad.isfinite().all() and grad.abs().max() < 1e3


def test_types_and_errors():
    P = torch.randn(2, 5, 3)
    r, t = keel.kabsch(P.half(), P.half())
    assert r.dtype == t.dtype == torch.half
    r, t = keel.kabsch(P.mT.contiguous().mT, P)
    close(r, torch.eye(3).expand(2, 3, 3), rtol=0, atol=1e-5)
    P[1, 0, 0] = math.nan
    points, weights = P.nan_to_num(), P[..., 0].abs()
    for outputs in (keel.kabsch(P, P, scale=True), keel.kabsch(points, points, weights, scale=True)):
        assert all(x[1].isnan().all() and x[0].isfinite().all() for x in outputs)
    with pytest.raises(RuntimeError, match=r"keel::kabsch: expected points \(..., N, d\) with d >= 1, got \(5, 0\)"):
        keel.kabsch(P[0, :, :0], P[0, :, :0])
    like = r"that broadcasts with points \(2, 5, 3\), got"
    with pytest.raises(RuntimeError, match=rf"keel::kabsch: expected Q \(..., N, d\) {like} \(4, 3\)"):
        keel.kabsch(P, P[0, :4])
    with pytest.raises(TypeError, match="keel.kabsch: expected a tensor, got NoneType"):
        keel.kabsch(P, None)
    with pytest.raises(RuntimeError, match=rf"keel::kabsch: expected weights \(..., N\) {like} \(3, 5\)"):
        keel.kabsch(P, P, torch.ones(3, 5))
