"""Times keel.eigsh and keel.svds beside torch.svd_lowrank, torch.lobpcg, scipy and all values: float32 matrices with
the spectrum i^-0.7, or that with every other sign changed ("both signs").

    PYTHONPATH=python python3 bench/partial.py [--device cpu] [--svds 4096x64,...] [--eigsh 1024x8,...] [--sparse 10000]
"""
import argparse
import importlib.util
import time

import torch

import keel


def spectrum(n, device):
    return torch.arange(1, n + 1, dtype=torch.double, device=device) ** -0.7


def dense(values, symmetric):
    generator = torch.Generator(values.device).manual_seed(0)
    matrix = torch.diag(values)
    for _ in range(4):
        h, g = torch.randn(2, len(values), 1, dtype=torch.double, generator=generator, device=values.device)
        h, g = h / h.norm(), (h if symmetric else g) / (h if symmetric else g).norm()
        matrix -= 2 * h @ (h.mT @ matrix)
        matrix -= 2 * (matrix @ g) @ g.mT
    return matrix.float()


def line(case, name, rounds, function, values_of=None, exact=None):
    best, wait = float("inf"), torch.cuda.synchronize if torch.cuda.is_available() else int
    try:
        for turn in range(rounds + 1):
            wait()
            start = time.perf_counter()
            result = function()
            wait()
            best = min(best, time.perf_counter() - start) if turn or not rounds else best
    except Exception as error:
        return print(f"{case:28}{name:28}{type(error).__name__}: {str(error)[:80]}", flush=True)
    text = f"{case:28}{name:28}{best * 1e3:9.2f} ms"
    if exact is not None:
        found = values_of(result).detach().double().abs().sort(descending=True)[0]
        text += f"   error {((found - exact.abs()) / exact.abs()).abs().max().item():.0e}"
    if name == "keel":
        text += f"   residual {result[-1].item():.0e}"
    print(text, flush=True)


def compare(case, function, matrix, k, exact, values_of, peers, rounds):
    leaf = matrix.detach().clone().requires_grad_()

    def both():
        loss = sum((x.square() * torch.linspace(1, 2, len(x), device=x.device).view(-1, *[1] * (x.dim() - 1))).sum()
                   for x in function(leaf, k))  # fmt: skip
        return torch.autograd.grad(loss, leaf)

    line(case, "keel", rounds, lambda: function(matrix, k, return_residual=True), values_of, exact)
    if exact is not None:
        line(case, "keel, tol=1e-5", rounds, lambda: function(matrix, k, tol=1e-5), values_of, exact)
    line(case, "keel, forward and backward", rounds, both)
    for name, peer in peers.items():
        line(case, name, min(rounds, 1) if name == "torch.lobpcg" else rounds, peer, values_of, exact)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
cuda = parser.parse_known_args()[0].device != "cpu"
parser.add_argument("--svds", default="1024x16,4096x64,8192x256" if cuda else "2000x10")
parser.add_argument("--eigsh", default="1024x1,1024x8,1024x64,4096x8,8192x64" if cuda else "2000x10")
parser.add_argument("--sparse", type=int, default=1_000_000 if cuda else 0)
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()
scipy = importlib.import_module("scipy.sparse.linalg") if importlib.util.find_spec("scipy") else None
print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if cuda else 'CPU'}", flush=True)
for n, k in [map(int, case.split("x")) for case in args.svds.split(",") if case]:
    a, values = dense(spectrum(n, args.device), False), spectrum(n, args.device)
    peers = {f"svd_lowrank, niter={i}": lambda i=i: torch.svd_lowrank(a, k, niter=i) for i in (2, 8)}
    if scipy and not cuda:
        peers["scipy"] = lambda: [torch.as_tensor(part.copy()) for part in scipy.svds(a.numpy(), k)]
    compare(f"svds {n}, k = {k}", keel.svds, a, k, values[:k], lambda r: r[1], peers, args.rounds)
for n, k, sign in [(*map(int, case.split("x")), sign) for case in args.eigsh.split(",") if case for sign in (1, -1)]:
    values = spectrum(n, args.device)
    values[1::2] *= sign
    m, peers = dense(values, True), {}
    if sign > 0 and n <= 2048:
        peers["keel.eigvalsh, all"] = lambda: [keel.eigvalsh(m)[-k:]]
        peers["torch.lobpcg"] = lambda: torch.lobpcg(m, k)
    if scipy and not cuda:
        peers["scipy"] = lambda: [torch.as_tensor(part.copy()) for part in scipy.eigsh(m.numpy(), k)]
    compare(f"eigsh {n}, k = {k}" + ", both signs" * (sign < 0), keel.eigsh, m, k, values[:k], lambda r: r[0], peers,
            args.rounds)  # fmt: skip
if args.sparse:  # once each, since it takes long
    n, places = args.sparse, torch.randint(args.sparse, (2, 5 * args.sparse), device=args.device)
    half = torch.sparse_coo_tensor(places, torch.rand(5 * n, device=args.device), (n, n))
    a = m = peers = None
    torch.cuda.reset_peak_memory_stats() if cuda else None
    compare(f"sparse eigsh {n}, k = 8", lambda m, k, **o: keel.eigsh(m, k, "LA", **{"tol": 1e-5, **o}),
            (half + half.t()).coalesce(), 8, None, None, {}, 0)  # fmt: skip
    print(f"most memory {torch.cuda.max_memory_allocated() / 1e9 if cuda else 0:.2f} GB", flush=True)
