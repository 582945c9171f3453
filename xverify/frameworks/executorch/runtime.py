"""What the subject and the files of ExecuTorch share: the lowering of a model, and the calls of a program."""

from __future__ import annotations

import importlib.metadata
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from xverify.errors import Failed, Unsupported, first_line

NEEDS = {"executorch": "executorch", "torch": "torch"}
ENVIRONMENT = "executorch"
METHOD = "forward"
XNNPACK, PORTABLE = "xnnpack", "portable"
# A line that ExecuTorch prints, such as "[method.cpp:1243] Error resizing tensor at input 0".
LINE = re.compile(r"^\[[\w.]+:\d+\] (.+)$", re.MULTILINE)


def runtime(threads: int) -> Any:
    """The runtime of this process. threads: their number for XNNPACK and for those kernels that have several."""
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    with printed():
        portable_lib._unsafe_reset_threadpool(threads)
    return Runtime.get()


def lowered(torch: Any, model: Any, example: tuple[Any, ...], backend: str) -> Any:
    """The program of a model, with its tree of outputs: (an ExecutorchProgramManager, an ExportedProgram).

    backend: XNNPACK, which computes what it can, and the portable kernels the rest; or PORTABLE.
    Raises Unsupported for a model that torch cannot export, or that has an operator which ExecuTorch does not know.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    with torch.inference_mode(False), torch.no_grad():
        try:
            exported = torch.export.export(model, example)
        except Exception as error:
            raise Unsupported(f"torch.export cannot export the model: {first_line(error)}") from error
        try:
            edge = to_edge_transform_and_lower(
                exported, partitioner=[XnnpackPartitioner()] if backend == XNNPACK else None
            )
            return edge.to_executorch(), exported
        except Exception as error:
            raise Unsupported(f"ExecuTorch cannot lower the model: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """Why a model cannot be lowered."""
    text = str(error)
    operator = re.search(r"Operator torch\._ops\.(\S+) is not in Core ATen opset", text)
    if operator:
        return f"operator {operator[1]} is none that it has"
    missing = re.search(r"Missing out variants: \{(.+?)\}", text)
    return f"operator {missing[1]} is none that it has" if missing else first_line(error)


def arranged(tensor: Any, order: Sequence[int]) -> Any:
    """The same tensor with its axes in this order in memory. ExecuTorch takes the memory of an input as if it had its order."""
    back = sorted(range(len(order)), key=lambda axis: order[axis])
    return tensor.permute(tuple(order)).contiguous().permute(tuple(back))


def function(program: Any, name: str, orders: Sequence[Sequence[int]]) -> Callable[..., Sequence[Any]]:
    """A method of a program as a function of tensors, which returns its outputs in order.

    orders: of the axes of each input in memory. It raises Failed with what ExecuTorch prints about a call that fails.
    """
    method = program.load_method(name)

    def call(*inputs: Any) -> Sequence[Any]:
        given = [arranged(each, order) for each, order in zip(inputs, orders)]
        assert program is not None  # a method keeps no hold of its program, whose memory it computes in
        try:
            return method.execute(given)
        except RuntimeError as error:
            with printed() as lines, suppress(RuntimeError):
                method.execute(given)
            raise Failed("; ".join(lines) or first_line(error)) from error

    return call


@contextmanager
def printed() -> Iterator[list[str]]:
    """The lines that ExecuTorch prints within the context. They are known at its end."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            lines += dict.fromkeys(LINE.findall(file.read().decode(errors="replace")))


def environment(torch: Any, threads: int) -> dict[str, object]:
    """Versions and threads."""
    return {"executorch": importlib.metadata.version("executorch"), "torch": torch.__version__, "threads": threads}
