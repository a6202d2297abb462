"""The examples run, in small."""

import importlib.util
import sys
import xml.etree.ElementTree as xml

import pytest
import torch


def cifar(root, monkeypatch, *arguments):
    spec = importlib.util.spec_from_file_location("cifar", root / "examples" / "cifar.py")
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cifar", example)  # torch.compile imports the module of what it compiles
    spec.loader.exec_module(example)
    monkeypatch.setattr(sys, "argv", ["cifar.py", *map(str, arguments)])
    example.main()
    return example


def write_images(file, count, classes, more_labels=0):
    """CIFAR's binary format; the class shows in the brightness."""
    labels = torch.arange(count) % classes
    noise = torch.randint(0, 20, (count, 3 * 32 * 32))
    pixels = noise + (200 * labels // (classes - 1)).unsqueeze(1)
    before = torch.full((count, more_labels), 7)
    file.write_bytes(bytes(torch.cat([before, labels.unsqueeze(1), pixels], 1).byte().flatten().tolist()))


@pytest.fixture
def small_cifar(tmp_path):
    """Both sets with the files and folders of the real ones, and few images."""
    for folder, files, classes, more in [
        ("cifar-10-batches-bin", [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"], 10, 0),
        ("cifar-100-binary", ["train.bin", "test.bin"], 100, 1),
    ]:
        (tmp_path / folder).mkdir()
        for file in files:
            write_images(tmp_path / folder / file, 20, classes, more)
    return tmp_path


SMALL = ["--width", 4, "--group-size", 4, "--batch", 16]


def test_cifar(root, small_cifar, monkeypatch, capsys):
    out = small_cifar / "curves.svg"
    options = [*SMALL, "--epochs", 2, "--bfloat16", "--channels-last", "--out", out, "--device", "cpu"]
    # oneDNN has bfloat16 convolutions for some processors only.
    with torch.backends.mkldnn.flags(enabled=False):
        cifar(root, monkeypatch, small_cifar, *options)
    printed = capsys.readouterr().out
    for name in ("batchnorm", "zca"):
        assert f"{name}: epoch   2 of 2, loss " in printed
        assert f"| {name} | " in printed and "failed" not in printed
    curves = xml.parse(out).findall(".//{http://www.w3.org/2000/svg}polyline")
    assert [len(curve.get("points").split()) for curve in curves] == [2, 2]


def test_cifar_100_in_the_first_norm(root, small_cifar, monkeypatch, capsys):
    options = ["--source", "cifar100", "--norms", "pca_denoising", "--where", "first", "--epochs", 1,
               "--out", small_cifar / "c.svg"]
    example = cifar(root, monkeypatch, small_cifar / "cifar-100-binary", *SMALL, *options)
    printed = capsys.readouterr().out
    assert "pca_denoising: epoch   1 of 1" in printed and "failed" not in printed
    images, labels = example.read("cifar100", small_cifar / "cifar-100-binary", ["train.bin"])
    assert labels.tolist() == list(range(20))  # the fine ones, not the sevens before them
    assert images.shape == (20, 3, 32, 32) and images[19].min() >= 200 * 19 // 99 > images[0].max()


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="needs torch 2.0")
def test_cifar_compiled(root, small_cifar, monkeypatch, capsys):
    options = ["--norms", "zca", "--where", "first", "--epochs", 1, "--compile", "--out", small_cifar / "c.svg"]
    cifar(root, monkeypatch, small_cifar, *SMALL, *options)
    assert "failed" not in capsys.readouterr().out


def test_cifar_augmentation_shifts_and_mirrors(root, small_cifar, monkeypatch):
    example = cifar(root, monkeypatch, small_cifar, *SMALL, "--norms", "batchnorm", "--epochs", 1, "--out",
                    small_cifar / "c.svg")
    image = torch.arange(1.0, 1 + 3 * 32 * 32).view(1, 3, 32, 32)
    made = example.Data.augmented(None, image.expand(64, -1, -1, -1))
    framed = torch.nn.functional.pad(image[0], [4, 4, 4, 4])
    possible = [
        window if not flip else window.flip(2)
        for top in range(9) for left in range(9) for flip in (False, True)
        for window in [framed[:, top:top + 32, left:left + 32]]
    ]
    found = {next(k for k, p in enumerate(possible) if torch.equal(p, one)) for one in made}
    assert len(found) > 20 and {k % 2 for k in found} == {0, 1}


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda folder: (folder / "data_batch_3.bin").unlink(), "scripts/get-cifar cifar10 "),
        (lambda folder: (folder / "test_batch.bin").write_bytes(b"1234"), "whole images of 3073 bytes each, got 4"),
        (lambda folder: write_images(folder / "test_batch.bin", 20, 11), "classes from 0 to 9, got 10"),
        (lambda folder: [write_images(folder / f"data_batch_{i}.bin", 1, 10) for i in range(1, 6)],
         "at least --batch 16 training images, got 5"),
    ],
)
def test_cifar_refuses(root, small_cifar, monkeypatch, change, said):
    change(small_cifar / "cifar-10-batches-bin")
    with pytest.raises(SystemExit, match=said):
        cifar(root, monkeypatch, small_cifar, *SMALL)


@pytest.mark.parametrize("draws", [False, True])
def test_rotations(root, tmp_path, capsys, monkeypatch, draws):
    figure, file = root / "docs" / "figures" / "rotations.svg", tmp_path / "rotations.svg"
    before = figure.stat().st_mtime_ns
    spec = importlib.util.spec_from_file_location("rotations", root / "examples" / "rotations.py")
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cifar", example)  # torch.compile imports the module of what it compiles
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "STEPS", 20)
    monkeypatch.setattr(example, "SEEDS", 1)
    registration = example.registration
    monkeypatch.setattr(example, "registration", lambda: registration(20))
    monkeypatch.setattr(sys, "argv", ["rotations.py"] + ["--out", str(file)] * draws)
    example.main()
    printed = capsys.readouterr().out
    assert "| a cube onto itself | `keel.special_procrustes` | 0 |" in printed
    assert "| a cube onto itself | `torch.linalg.svd` | 20 |" in printed
    assert "| all poses the identity | `torch.linalg.svd` | 1 of 1 (at step 1) |" in printed
    assert file.exists() == draws and figure.stat().st_mtime_ns == before
    if draws:
        picture = xml.parse(file).getroot()
        assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) > 20
        made_by = picture.findtext("{http://www.w3.org/2000/svg}metadata")
        assert made_by.endswith("rotations.py --out docs/figures/rotations.svg")
