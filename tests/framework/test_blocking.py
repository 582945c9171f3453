"""Timed blocks leave out the wait after a call only where the adapter's own ``wait`` has nothing to do."""

import pytest

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def test_an_adapter_with_its_own_wait_is_waited_for():
    class Waits(Numpy):
        def wait(self, outputs):
            raise NotImplementedError

    class Says(Waits):
        blocking = True

    assert Numpy.blocking
    assert not Waits.blocking
    assert Says.blocking


def test_torch_and_its_subclasses():
    pytest.importorskip("torch")
    from xverify.frameworks.torch.adapter import Adapter as Torch

    class Waits(Torch):
        def wait(self, outputs):
            raise NotImplementedError

    assert Torch(1, "cpu").blocking
    assert not Waits(1, "cpu").blocking
