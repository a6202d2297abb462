"""Process groups of converted layers, and what a layer says without a process group there."""

import copy
import pickle
import re

import pytest
import torch
from torch import nn

import keel
from keel.nn import convert_batchnorm


def test_a_sync_batchnorm_hands_its_group_on():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert convert_batchnorm(copy.deepcopy(model))[1].process_group == "world"
    assert convert_batchnorm(copy.deepcopy(model), process_group=None)[1].process_group is None
    plain = nn.BatchNorm2d(8)
    assert convert_batchnorm(plain).process_group is None
    assert convert_batchnorm(plain, process_group="world").process_group == "world"


def test_a_sync_batchnorms_statistics_are_kept():
    norm = nn.SyncBatchNorm(4).double().eval()
    norm.running_mean.uniform_()
    norm.running_var.uniform_(1, 2)
    norm.num_batches_tracked.fill_(5)
    x = torch.randn(6, 4, 3, dtype=torch.double)
    truth = nn.functional.batch_norm(x, norm.running_mean, norm.running_var, eps=norm.eps)
    torch.testing.assert_close(convert_batchnorm(norm)(x), truth)


def test_training_without_a_group_there_is_an_error():
    layer = keel.nn.ZcaWhitening(4, process_group="world")
    with pytest.raises(RuntimeError, match="expected torch.distributed to be initialised"):
        layer(torch.randn(9, 4))
    assert layer.eval()(torch.randn(9, 4)).isfinite().all()
    with pytest.raises(ValueError, match="'world' or None, got 'wrold'"):
        keel.nn.ZcaWhitening(4, process_group="wrold")


def test_state_copies_and_pickles_are_as_ever():
    layer = keel.nn.PcaDenoising(4, process_group="world")
    assert list(layer.state_dict()) == list(keel.nn.PcaDenoising(4).state_dict())
    assert copy.deepcopy(layer).process_group == "world"
    assert pickle.loads(pickle.dumps(layer)).process_group == "world"
    assert "process_group=world" in repr(layer)
    assert "process_group" not in repr(keel.nn.PcaDenoising(4))


def test_code_of_the_page_runs(root):
    page = (root / "docs" / "distributed.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    space = {}
    exec(blocks[0], space)
    assert len(blocks) == 1 and space["model"][1].process_group == "world"
