"""A checkpoint of ours, read by the safetensors package. Usage: KEEL."""

import glob
import subprocess
import sys
import tempfile

try:
    import numpy
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

with tempfile.TemporaryDirectory() as run:
    tiny = "--model resnet_small --width 4 --norm zca --train-limit 64 --test-limit 16 --size 8 --batch 16 --epochs 2"
    words = [sys.argv[1], "train", *tiny.split(), "--recalibrate", "0", "--device", "cpu", "--run", run]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    newest = sorted(glob.glob(f"{run}/checkpoints/*.safetensors"))[-1]
    with safe_open(newest, framework="numpy") as file:
        names = set(file.keys())
        assert {"conv1.weight", "bn1.running_matrix", "fc.bias", "optimiser.fc.bias"} <= names, names
        weight = file.get_tensor("conv1.weight")
        assert weight.shape == (4, 3, 3, 3) and weight.dtype == numpy.float32
        assert numpy.isfinite(weight).all() and weight.std() > 0
        assert file.get_tensor("bn1.num_batches_tracked") == 8
print("read", len(names), "tensors")
