"""The examples run, in small."""

import importlib.util

import torch


def test_rotations(root, tmp_path, capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("rotations", root / "examples" / "rotations.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "STEPS", 20)
    monkeypatch.setattr(example, "SEEDS", 1)
    monkeypatch.setattr(example, "FILE", tmp_path / "rotations.svg")
    torch.manual_seed(0)
    example.registration(20)
    example.picture(example.poses())
    printed = capsys.readouterr().out
    assert "| a cube onto itself | `keel.special_procrustes` | 0 |" in printed
    assert "| a cube onto itself | `torch.linalg.svd` | 20 |" in printed
    assert "| all poses the identity | `torch.linalg.svd` | 1 of 1 (at step 1) |" in printed
    assert (tmp_path / "rotations.svg").read_text().count("<polyline") > 20
