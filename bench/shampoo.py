"""Shampoo's inverse fourth roots, in two parts.

1. The step of twelve transformer blocks: twelve statistics of 768 rows and twelve of 3072, of gradients of such a
   network, by keel and by torch.linalg.eigh in turns.
2. A training of a smaller network on the text of this repository's pages, with Shampoo in every step. Each root X of
   each preconditioner M is checked: X is finite, and X^-4, by an LU decomposition in float64, is M but for rounding.

    PYTHONPATH=python python3 bench/shampoo.py [--device cpu] [--width 768] [--preconditioners 100000]
"""
import argparse
import time
from pathlib import Path

import torch
from torch import nn

import keel

BLOCKS, LENGTH, BATCH, RIDGE, DECAY = 12, 64, 8, 1e-5, 0.95


def text(device):
    pages = sorted(Path(__file__).resolve().parents[1].glob("docs/**/*.md"))
    return torch.frombuffer(bytearray(b"".join(page.read_bytes() for page in pages)), dtype=torch.uint8).to(device)


def network(width, device):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, BLOCKS, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(256, width), body, nn.Linear(width, 256)).to(device)


def loss_of(model, letters):
    starts = torch.randint(len(letters) - LENGTH, (BATCH, 1), device=letters.device)
    found = letters[starts + torch.arange(LENGTH, device=letters.device)].long()
    mask = torch.full((LENGTH - 1, LENGTH - 1), -torch.inf, device=letters.device).triu(1)
    return nn.functional.cross_entropy(model[2](model[1](model[0](found[:, :-1]), mask)).mT, found[:, 1:])


def ridged(matrices):
    size = matrices.norm(dim=(-2, -1), keepdim=True)
    return matrices + RIDGE * size * torch.eye(matrices.shape[-1], device=matrices.device)


def best_ms(functions, device, rounds):
    """Of each function the least of some rounds, in turns, after one that does not count."""
    least = [float("inf")] * len(functions)
    for turn in range(rounds + 1):
        for place, function in enumerate(functions):
            wait = torch.cuda.synchronize if device == "cuda" else int
            wait()
            start = time.perf_counter()
            function()
            wait()
            if turn:
                least[place] = min(least[place], 1000 * (time.perf_counter() - start))
    return least


def step_of_twelve_blocks(width, device):
    model, letters = network(width, device), text(device)
    first = [block.linear1.weight for block in model[1].layers]  # (4 width, width)
    small, large = [0] * BLOCKS, [0] * BLOCKS
    for _ in range(10):
        gradients = torch.autograd.grad(loss_of(model, letters), first)
        small = [s * DECAY + g.mT @ g for s, g in zip(small, gradients)]
        large = [s * DECAY + g @ g.mT for s, g in zip(large, gradients)]

    def by_torch(stack):
        values, vectors = torch.linalg.eigh(stack)
        return vectors * values.pow(-0.25).unsqueeze(-2) @ vectors.mT

    total = [0.0, 0.0]
    print(f"{BLOCKS} statistics of each size, float32, ms: keel.powm, torch's root; keel.eigh, torch.linalg.eigh")
    for statistics in (small, large):
        stack = ridged(torch.stack(statistics))
        root = best_ms([lambda: keel.powm(stack, -0.25), lambda: by_torch(stack)], device, 3)
        eigh = best_ms([lambda: keel.eigh(stack), lambda: torch.linalg.eigh(stack)], device, 2)
        total = [a + b for a, b in zip(total, root)]
        print(f"n = {stack.shape[-1]}: {root[0]:.1f}, {root[1]:.1f} ({root[1] / root[0]:.2f} x);"
              f" {eigh[0]:.1f}, {eigh[1]:.1f} ({eigh[1] / eigh[0]:.2f} x)", flush=True)  # fmt: skip
    print(f"all roots of a step: {total[0]:.1f}, {total[1]:.1f} ({total[1] / total[0]:.2f} x)", flush=True)


def judged(M, X):
    """Of roots X of matrices M, float32: how many are not finite, how many are wrong, and the largest error of X^-4 as
    a part of its bound. That is for the root of M + E, with |E| of n epsilons of |M|, rounded by n epsilons of its own
    size: the power multiplies that by 4 |X^-1| |X|, and |X^-1|^4 is |M|."""
    M, X, n = M.double().flatten(0, -3), X.double().flatten(0, -3), M.shape[-1]
    finite = X.isfinite().flatten(1).all(1)
    inverse = torch.linalg.inv(torch.where(finite[:, None, None], X, torch.eye(n, dtype=X.dtype, device=X.device)))
    size = M.norm(dim=(1, 2))
    error = (torch.linalg.matrix_power(inverse, 4) - M).norm(dim=(1, 2)) / size
    bound = n * torch.finfo(torch.float).eps * (1 + 4 * size**0.25 * X.norm(dim=(1, 2)))
    part = torch.where(finite, error / bound, torch.zeros_like(error))
    return torch.stack([(~finite).sum(), (~(part <= 1)).sum(), part.amax()])


def training(width, device, wanted):
    model, letters = network(width, device), text(device)
    weights = [p for p in model[1].parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if all(p is not weight for weight in weights)]
    alike = [[w for w in weights if w.shape == shape] for shape in sorted({w.shape for w in weights})]
    averages = [[0] * 3 for _ in alike]  # of G, of G G^T and of G^T G, stacked
    adam, count, found, losses = torch.optim.AdamW(others, 0.003), 0, [], []
    start = time.perf_counter()
    while count < wanted:
        loss = loss_of(model, letters)
        losses.append(loss.detach())
        for p in model.parameters():
            p.grad = None
        loss.backward()
        adam.step()
        with torch.no_grad():
            for average, group in zip(averages, alike):
                g = torch.stack([weight.grad for weight in group])
                average[:] = [a * DECAY + b for a, b in zip(average, (g, g @ g.mT, g.mT @ g))]
            matrices = [ridged(side) for average in averages for side in average[1:]]
            roots = keel.powm(matrices, -0.25)
            for (momentum, _, _), left, right, group in zip(averages, roots[::2], roots[1::2], alike):
                update = left @ momentum @ right
                update *= 0.003 * update[0].numel() ** 0.5 / update.norm(dim=(1, 2), keepdim=True)
                torch._foreach_sub_(group, list(update))
            count += sum(len(stack) for stack in matrices)
            found += [judged(M, X) for M, X in zip(matrices, roots)]
    found = torch.stack(found)
    rows = ", ".join(map(str, sorted({stack.shape[-1] for stack in matrices})))
    print(f"{count} preconditioners of {len(losses)} steps, {rows} rows: {found[:, 0].sum():.0f} roots not finite,"
          f" {found[:, 1].sum():.0f} wrong, the largest error {found[:, 2].amax():.2g} of its bound;"
          f" loss {losses[0]:.2f} to {torch.stack(losses[-10:]).mean():.2f};"
          f" {time.perf_counter() - start:.0f} s")  # fmt: skip


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda")
parser.add_argument("--width", type=int, default=768, help="of the step that is timed")
parser.add_argument("--trained-width", type=int, default=64)
parser.add_argument("--preconditioners", type=int, default=100_000)
options = parser.parse_args()
print(torch.cuda.get_device_name() if options.device == "cuda" else "CPU", "torch", torch.__version__, flush=True)
step_of_twelve_blocks(options.width, options.device)
training(options.trained_width, options.device, options.preconditioners)
