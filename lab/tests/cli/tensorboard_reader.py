"""Trains two epochs and reads the event files with TensorBoard's own reader; 77 where it is missing."""

import json
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("tensorboard is not installed: skipped")
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    subprocess.run(
        [sys.argv[1], "train", "--run", folder, "--model", "resnet_small", "--norm", "zca"]
        + ["--train-limit", "64", "--test-limit", "20", "--batch", "16", "--epochs", "2"]
        + ["--log-every", "2", "--device", "cpu"],
        check=True,
    )
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    with open(folder + "/metrics.jsonl") as lines:
        records = [json.loads(line) for line in lines]
    for tag, kind, name in [("train/loss", "step", "loss"), ("test/error", "epoch", "test_error")]:
        expected = [(r["step"], r[name]) for r in records if r["kind"] == kind]
        found = [(e.step, e.value) for e in events.Scalars(tag)]
        assert [s for s, _ in found] == [s for s, _ in expected], (tag, found, expected)
        for (_, a), (_, b) in zip(found, expected):
            assert abs(a - b) <= 1e-6 * max(1.0, abs(b)), (tag, a, b)
    print("TensorBoard reads", ", ".join(events.Tags()["scalars"]))
