"""Kills a training run at random moments, goes on with it each time, and compares what comes out bit by bit
with a run that was left alone.

  kills.py KEEL [--kills N] [--epochs E] [--seed S] [--how alone|full-disk]...

alone       one process, kill -9
full-disk   the disk is full from a random moment on; then the process is killed, told to stop, or left to come to
            its end; a small tmpfs where this may mount one (root), else a limit on the size of files

Checked after every kill: no checkpoint is damaged, and the run never goes on from an earlier step than it went on
from before. At the end: weights, momenta and random state, the position, every record, and the result.

A busy machine may take as long as it likes, as long as the run gets on.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

STEPS_OF_AN_EPOCH = 16
# A checkpoint at every step, so that kills meet them half-written.
TRAINING = """--model resnet_small --width 4 --norm zca --train-limit 64 --test-limit 16 --size 8 --batch 4
  --checkpoint-every 1 --log-every 1 --keep 2 --device cpu --threads 1""".split()
STILL = 600  # seconds without a record, a word or an end: it hangs
CHANGES = {"images_per_second", "recalibration_seconds", "seconds", "time"}  # from one run to the next
LOST, INTERRUPTED = 1, 5  # exit codes of keel


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def records_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if name not in CHANGES}
        for line in lines
        if line["kind"] in ("step", "epoch", "failure")
    ]


def compare(run, whole, steps):
    names = sorted(file.name for file in (run / "checkpoints").iterdir())
    check(names == sorted(file.name for file in (whole / "checkpoints").iterdir()), names)
    last = f"step-{steps:08}"
    check(f"{last}.json" in names, names)
    for name in names:
        if name.endswith(".safetensors"):
            check((run / "checkpoints" / name).read_bytes() == (whole / "checkpoints" / name).read_bytes(), name)
    for file in (f"checkpoints/{last}.json", "result.json"):
        ours, theirs = (json.loads((folder / file).read_text()) for folder in (run, whole))
        for about in (ours, theirs):
            for name in ("run", "resume"):
                about.get("options", {}).pop(name, None)
        for name in (ours.keys() | theirs.keys()) - CHANGES:
            check(ours.get(name) == theirs.get(name), f"{file}: {name}: {ours.get(name)} and {theirs.get(name)}")
    ours, theirs = records_of(run), records_of(whole)
    for mine, expected in zip(ours, theirs):
        check(mine == expected, f"{mine} and {expected}")
    check(len(ours) == len(theirs), f"{len(ours)} records and {len(theirs)}")


class Life:
    """One process of the run, from its start to its end."""

    def __init__(self, keel, run, epochs):
        # Its first call may have been killed before there was anything to go on with.
        begun = (run / "config.toml").exists()
        fresh = ["train", "--run", str(run), "--overwrite", "--epochs", str(epochs), *TRAINING]
        words = ["train", "--resume", str(run)] if begun else fresh
        self.log = tempfile.TemporaryFile("w+")
        self.metrics = run / "metrics.jsonl"
        self.process = subprocess.Popen(
            [keel, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            start_new_session=True,
            restore_signals=False,
            # Writing beyond a limit is an error then, as on a full disk, not the end.
            preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
        )

    def signs(self):
        """What changes while the run gets on."""
        return self.size(), os.fstat(self.log.fileno()).st_size, self.process.poll()

    def size(self):
        return self.metrics.stat().st_size if self.metrics.exists() else 0

    def watch(self, done):
        """Waits until it is done, as long as the run gets on."""
        signs, since = self.signs(), time.monotonic()
        while not done():
            time.sleep(0.001)
            now = self.signs()
            if now != signs:
                signs, since = now, time.monotonic()
            elif time.monotonic() - since > STILL:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise AssertionError(f"nothing happened for {STILL} s: {self.words()}")

    def ended(self):
        return self.process.poll() is not None

    def wait_for_a_step(self):
        size = self.size()
        self.watch(lambda: self.ended() or self.size() > size + 400)

    def words(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        self.watch(self.ended)
        return self.process.returncode, self.words()


class Alone:
    def __init__(self, chance):
        self.chance = chance

    @contextmanager
    def place(self, folder):
        yield folder

    def strike(self, life):
        os.killpg(life.process.pid, signal.SIGKILL)

    def after(self, run, code):
        pass


class FullDisk(Alone):
    def __init__(self, chance):
        super().__init__(chance)
        self.mounted = False

    @contextmanager
    def place(self, folder):
        disk = folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "keel-kills", str(disk)]
        self.mounted = os.geteuid() == 0 and subprocess.run(mount, stderr=subprocess.DEVNULL).returncode == 0
        print("a tmpfs of 4 MiB" if self.mounted else "a limit on the size of files")
        try:
            yield disk
        finally:
            if self.mounted:
                subprocess.run(["umount", "-l", str(disk)], check=True)

    def strike(self, life):
        if self.mounted:
            with open(life.metrics.parent.parent / "filler", "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(bytes(4096))
                except OSError:
                    pass
        else:
            resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        time.sleep(self.chance.uniform(0, 0.1))
        number = self.chance.choice([signal.SIGKILL, signal.SIGTERM, None])
        if number is not None:
            life.process.send_signal(number)

    def after(self, run, code):
        (run.parent / "filler").unlink(missing_ok=True)
        check(code in (0, LOST, INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM), f"exit code {code}")


HOW = {"alone": Alone, "full-disk": FullDisk}


def attack(keel, how, kills, epochs, chance):
    enemy = HOW[how](chance)
    steps, struck, runs = epochs * STEPS_OF_AN_EPOCH, 0, 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="keel-kills-") as name:
        folder = Path(name)
        whole = folder / "whole"
        code, log = Life(keel, whole, epochs).end()
        check(code == 0, log)
        with enemy.place(folder) as place:
            while struck < kills:
                run, reached, seconds = place / "run", 0, 1.0
                shutil.rmtree(run, ignore_errors=True)
                while True:
                    life = Life(keel, run, epochs)
                    if struck < kills:
                        if chance.random() < 0.2:  # somewhere in its start
                            time.sleep(chance.uniform(0, seconds))
                        else:
                            start = time.monotonic()
                            life.wait_for_a_step()
                            seconds = time.monotonic() - start
                            time.sleep(chance.uniform(0, 0.06))
                        if not life.ended():
                            enemy.strike(life)
                            struck += 1
                    code, log = life.end()
                    enemy.after(run, code)
                    check("damaged" not in log, log)
                    step = re.search(r"resuming after step (\d+)", log)
                    check(step is None or int(step[1]) >= reached, f"went on from before step {reached}: {log}")
                    reached = int(step[1]) if step else reached
                    if code == 0:
                        break
                    check(struck <= kills and code != 2 and code != 3, f"exit code {code}: {log}")
                compare(run, whole, steps)
                runs += 1
    print(
        f"{how}: killed {struck} times, {runs} run{'s' if runs > 1 else ''} of {steps} steps came to the same bits,"
        f" {time.monotonic() - began:.0f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keel")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--how", choices=HOW, action="append")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    for how in options.how or HOW:
        attack(options.keel, how, options.kills, options.epochs, random.Random(f"{seed} {how}"))


if __name__ == "__main__":
    sys.exit(main())
