"""Runs a function in several processes that form a group (Gloo: over loopback), found by a file."""

import datetime
import os
import tempfile
import time
import traceback

import torch
from torch import distributed as dist
from torch import multiprocessing


def _rank(rank, size, store, timeout, backend, body, arguments, queue):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        store = dist.FileStore(store, size)
        # All have started before a timeout begins, however busy the machine is.
        store.set(f"started_{rank}", "yes")
        store.wait([f"started_{r}" for r in range(size)], datetime.timedelta(seconds=120))
        dist.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=timeout),
        )
        queue.put((rank, body(rank, size, *arguments), None))
    except BaseException:
        queue.put((rank, None, traceback.format_exc()))


def run(size, body, *arguments, timeout=60, patience=300, awaited=None, backend="gloo"):
    """What ``body(rank, size, *arguments)`` returned on each rank, or on the first ``awaited``; an
    error there is one here."""
    awaited = size if awaited is None else awaited
    # Fresh processes as spawn makes them, forked from one that has imported torch already: a second each.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with tempfile.TemporaryDirectory() as folder:
        queue = context.SimpleQueue()
        store = os.path.join(folder, "store")
        ranks = [
            context.Process(
                target=_rank,
                args=(r, size, store, timeout, backend, body, arguments, queue),
                daemon=True,
            )
            for r in range(size)
        ]
        for rank in ranks:
            rank.start()
        results, errors, end = {}, {}, time.monotonic() + patience
        try:
            while not errors and len(results) < awaited:
                if queue.empty():
                    assert time.monotonic() < end, f"ranks hang; so far {results} and {errors}"
                    assert any(rank.is_alive() for rank in ranks) or not queue.empty(), "ranks died"
                    time.sleep(0.02)
                    continue
                rank, result, error = queue.get()
                (results if error is None else errors)[rank] = result if error is None else error
        finally:
            for rank in ranks:
                if len(results) == size:
                    rank.join(5)
                if rank.is_alive():
                    rank.kill()
        assert not errors, "\n".join(f"rank {r}: {e}" for r, e in sorted(errors.items()))
        return [results[r] for r in range(awaited)]
