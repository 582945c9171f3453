"""The sizes of the activations of a pass, found with fake tensors: they have a shape, and neither values nor memory."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from xverify.framework.adapter import Activations
from xverify.framework.structures import leaves

CONVOLUTION = torch.ops.aten.convolution.default


class _Sizes(TorchDispatchMode):
    """Measures what the operations within its context take and return. A view has no size of its own.

    weights: the tensors that are no activations.
    """

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = _storages(weights)
        self.largest = self.total = self.unfolded = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given, returned = _storages([args, kwargs or {}]), _storages(result)
        made = sum(size for key, size in returned.items() if key not in given)
        if made:  # neither a view nor an operation that works in place
            taken = sum(size for key, size in given.items() if key not in self.weights)
            self.largest, self.total = max(self.largest, taken + made), self.total + made
        if function is CONVOLUTION:
            self.unfolded = max(self.unfolded, _unfolded(result, args[1], args[6]))
        return result


def _storages(values: Any) -> dict[int, int]:
    """The key of each tensor's storage -> its bytes."""
    found = [each.untyped_storage() for each in leaves(values) if isinstance(each, Tensor)]
    return {storage._cdata: storage.nbytes() for storage in found}


def _unfolded(output: Tensor, weight: Tensor, transposed: bool) -> int:
    """The bytes of the matrix that has a row for each place of the output, and a column for each weight that is used there."""
    if (
        transposed or math.prod(weight.shape[2:]) == 1
    ):  # the one has a matrix for each item, the other's input is the matrix
        return 0
    return output.numel() // weight.shape[0] * math.prod(weight.shape[1:]) * output.element_size()


def activations(model: nn.Module, inputs: tuple[Any, ...], training: bool) -> Activations:
    """The sizes of the activations of a pass on these inputs. The model itself is neither called nor changed.

    Raises what torch raises when the code of the model needs values. training: whether gradients will be computed.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        with FakeCopyMode(fake):  # a pass may store tensors in the model
            model = copy.deepcopy(model)
        given = [fake.from_tensor(each) if isinstance(each, Tensor) else each for each in inputs]
        sizes = _Sizes([*model.parameters(), *model.buffers()])
        with torch.set_grad_enabled(training), sizes:
            model.train(training)(*given)
    return Activations(sizes.largest, sizes.total, sizes.unfolded)
