"""Times keel.eigsh and keel.svds beside torch.svd_lowrank, torch.lobpcg, scipy and all values: float32 matrices with
the spectrum i^-0.7, or that with every other sign changed ("signs"), or a random one without decay ("wigner").

    PYTHONPATH=python python3 bench/partial.py [--device cpu] [--svds 4096x64,...] [--eigsh 1024x8,...] [--sparse 10000]

With --cpu-time, set OPENBLAS_NUM_THREADS=1. On a GPU it takes less than a minute. `launches` are those of one call, and
`busy` is how long the device computed in it. torch.lobpcg and the call beside it have the same tolerance, 1e-4.
"""
import argparse
import importlib.util
import os
import time

import torch

import keel

LINE = "{:30}{:30}{:>10}  {}"


def spectrum(n, device, kind="decay"):
    values = torch.arange(1, n + 1, dtype=torch.double, device=device) ** -0.7
    if kind == "signs":
        values[1::2] *= -1
    return values


def dense(values, symmetric):
    generator = torch.Generator(values.device).manual_seed(0)
    matrix = torch.diag(values)
    for _ in range(4):
        h, g = torch.randn(2, len(values), 1, dtype=torch.double, generator=generator, device=values.device)
        h, g = h / h.norm(), (h if symmetric else g) / (h if symmetric else g).norm()
        matrix -= 2 * h @ (h.mT @ matrix)
        matrix -= 2 * (matrix @ g) @ g.mT
    return matrix.float()


def wigner(n, device):
    generator = torch.Generator(device).manual_seed(0)
    m = torch.randn(n, n, generator=generator, device=device)
    return (m + m.mT) / (8 * n) ** 0.5


def timed(function, rounds):
    best, wait = float("inf"), torch.cuda.synchronize if cuda else int
    for turn in range(rounds + 1):
        wait()
        start = clock()
        result = function()
        wait()
        best = min(best, clock() - start) if turn or not rounds else best
    return best, result


def launched(function):
    """Launches and busy milliseconds of one call, and what it spends them on."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        function()
        torch.cuda.synchronize()
    times = {}
    for event in seen.events():
        if "cuda" in str(event.device_type).lower() and not event.name.startswith("Mem"):
            spent = getattr(event, "device_time", None) or getattr(event, "cuda_time", 0)
            count, total = times.get(event.name, (0, 0.0))
            times[event.name] = count + 1, total + spent / 1e3
    return sum(c for c, _ in times.values()), sum(t for _, t in times.values()), times


def line(case, name, rounds, function, note=lambda result: ""):
    try:
        best, result = timed(function, rounds)
        text = note(result)
        if cuda and name.startswith("keel") and "all" not in name and rounds:
            count, busy, _ = launched(function)
            text += f"   {count} launches, busy {busy:.2f} ms"
        print(LINE.format(case, name, f"{best * 1e3:.2f} ms", text), flush=True)
        return best
    except Exception as error:
        print(LINE.format(case, name, "", f"{type(error).__name__}: {str(error)[:90]}"), flush=True)
        return float("nan")


def both(function, matrix, k):
    """Forward and backward."""
    leaf = matrix.detach().clone().requires_grad_()

    def run():
        loss = sum((x.square() * torch.linspace(1, 2, len(x), device=x.device).view(-1, *[1] * (x.dim() - 1))).sum()
                   for x in function(leaf, k))  # fmt: skip
        return torch.autograd.grad(loss, leaf)

    return run


def error_of(exact, place):
    def note(result):
        found = result[place].detach().double().abs().sort(descending=True)[0]
        return f"relative error of the values {((found - exact.abs()) / exact.abs()).abs().max().item():.0e}"

    return note


def residual_of(matrix):
    def note(result):
        values, vectors = result[0], result[1]
        residual = (matrix @ vectors - vectors * values).norm(dim=0).max() / values.abs().max()
        return f"residual {residual.item():.0e}"

    return note


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
cuda = parser.parse_known_args()[0].device != "cpu"
parser.add_argument("--svds", default="1024x16,4096x64,8192x256" if cuda else "2000x10")
sizes = [f"{n}x{k}" for n in (1024, 2048, 4096, 8192) for k in (1, 8, 64)]
parser.add_argument("--eigsh", default=",".join(sizes) if cuda else "2000x10")
parser.add_argument("--sparse", type=int, default=1_000_000 if cuda else 0)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--cpu-time", action="store_true", help="one thread's, which other programs disturb less")
args = parser.parse_args()
scipy = importlib.import_module("scipy.sparse.linalg") if importlib.util.find_spec("scipy") and not cuda else None
torch.set_num_threads(1 if args.cpu_time else os.cpu_count() or 1)
clock = time.process_time if args.cpu_time else time.perf_counter
print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if cuda else 'CPU'}", flush=True)
began = time.perf_counter()

for n, k in [map(int, case.split("x")) for case in args.svds.split(",") if case]:
    values = spectrum(n, args.device)
    a, case, note = dense(values, False), f"svds {n}, k = {k}", error_of(values[:k], 1)
    for tol in (1e-4, 3e-5, 1e-5, None):
        plain = line(case, f"keel, tol={tol}", args.rounds, lambda: keel.svds(a, k, tol=tol), note)
    whole = line(case, "keel, forward and backward", args.rounds, both(keel.svds, a, k))
    print(LINE.format(case, "over forward", f"{whole / plain:.1f} x", ""))
    for niter in (2, 8):
        line(case, f"svd_lowrank, niter={niter}", args.rounds, lambda: torch.svd_lowrank(a, k, niter=niter), note)
    if scipy:
        line(case, "scipy", args.rounds, lambda: scipy.svds(a.numpy(), k)[1].copy(),
             lambda s: error_of(values[:k], 0)([torch.as_tensor(s)]))  # fmt: skip
    if cuda and n == 4096:
        spent = launched(lambda: keel.svds(a, k, tol=1e-5))[2]
        for name, (count, busy) in sorted(spent.items(), key=lambda item: -item[1][1])[:14]:
            print(f"    {busy:8.3f} ms in {count:4} of {name[:100]}")
for n, k in [map(int, case.split("x")) for case in args.eigsh.split(",") if case]:
    for kind in ("decay", "signs", "wigner"):
        if cuda and kind == "wigner" and n > 2048:
            continue
        m = wigner(n, args.device) if kind == "wigner" else dense(spectrum(n, args.device, kind), True)
        case, note = f"eigsh {n}, k = {k}, {kind}", residual_of(m)
        rough = line(case, "keel, tol=1e-4", args.rounds, lambda: keel.eigsh(m, k, "LA", tol=1e-4), note)
        plain = line(case, "keel", args.rounds, lambda: keel.eigsh(m, k, "LA"), note)
        if k == 8:
            whole = line(case, "keel, forward and backward", 1, both(lambda x, k: keel.eigsh(x, k, "LA"), m, k))
            print(LINE.format(case, "over forward", f"{whole / plain:.1f} x", ""))
        if n <= 2048 and k == 8:
            line(case, "keel.eigh, all", 1, lambda: keel.eigh(m))
        if scipy:
            line(case, "scipy", args.rounds, lambda: [torch.as_tensor(x.copy()) for x in scipy.eigsh(m.numpy(), k)])
        elif kind != "wigner" and (n <= 2048 or k == 8) and time.perf_counter() - began < 45:
            peer = line(case, "torch.lobpcg", 0, lambda: torch.lobpcg(m, k, largest=True, tol=1e-4), note)
            print(LINE.format(case, "over keel", f"{peer / rough:.0f} x", ""))
if args.sparse:  # once each, since it takes long
    n, places = args.sparse, torch.randint(args.sparse, (2, 5 * args.sparse), device=args.device)
    half = torch.sparse_coo_tensor(places, torch.rand(5 * n, device=args.device), (n, n))
    whole = (half + half.t()).coalesce()
    a = m = half = places = None
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    line(f"sparse eigsh {n}, k = 8", "keel, tol=1e-5", 0, lambda: keel.eigsh(whole, 8, "LA", tol=1e-5),
         residual_of(whole))  # fmt: skip
    print(f"most memory {torch.cuda.max_memory_allocated() / 1e9 if cuda else 0:.2f} GB")
    line(f"sparse eigsh {n}, k = 8", "keel, forward and backward", 0,
         both(lambda x, k: keel.eigsh(x, k, "LA", tol=1e-5), whole, 8))  # fmt: skip
    print(f"most memory {torch.cuda.max_memory_allocated() / 1e9 if cuda else 0:.2f} GB")
print(f"{time.perf_counter() - began:.0f} s in all")
