"""The examples run, in small."""

import importlib.util
import sys

import pytest


@pytest.mark.parametrize("draws", [False, True])
def test_rotations(root, tmp_path, capsys, monkeypatch, draws):
    figure, file = root / "docs" / "figures" / "rotations.svg", tmp_path / "rotations.svg"
    before = figure.stat().st_mtime_ns
    spec = importlib.util.spec_from_file_location("rotations", root / "examples" / "rotations.py")
    example = importlib.util.module_from_spec(spec)
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
        assert file.read_text().count("<polyline") > 20
