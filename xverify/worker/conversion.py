"""The work of a worker that converts a model with its framework's own converter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import Failed, XverifyError
from ..framework import converter
from ..framework.converter import Converter, Job, Layer
from ..messages.conversion import Convert, FindLayers
from ..weights import npz
from .handlers import Group

LONGEST = 600  # characters of an error that a message quotes


class ConversionWork(Group):
    """Handlers of requests about a conversion."""

    def convert(self, request: Convert) -> str:
        """Do one step. What a converter raises becomes one line."""
        state, of_model = self.state, request.source is None
        job = Job(
            framework=state.runner,
            model=state.model if of_model else None,
            inputs=request.names,
            outputs=request.outputs,
            arrays=npz.load_file(Path(request.inputs)),
            native=state.native_cases(request.inputs) if of_model else (),
            source=None if request.source is None else Path(request.source),
            path=Path(request.path),
            quantize=request.quantize,
            exporter=request.exporter,
            traces=request.traces,
            keep=request.keep,
        )
        target = converter.load(request.to)
        with self._in_one_line(target):
            says: str = getattr(target, request.method)(job)
        if not job.path.exists():
            raise Failed(f"the converter to {target.title} wrote no file")
        return says

    def find_layers(self, request: FindLayers) -> tuple[Layer, ...]:
        """Find the layers of a float32 file. What a converter raises becomes one line."""
        target = converter.load(request.to)
        with self._in_one_line(target):
            return target.layers(Path(request.source), request.quantize)

    @contextmanager
    def _in_one_line(self, target: type[Converter]) -> Iterator[None]:
        """Raise Failed, with one line, for what a converter raises."""
        try:
            yield
        except (XverifyError, MemoryError):
            raise
        except Exception as error:
            raise Failed(f"the converter to {target.title} failed: {_cause(error)}{self.state.place(error)}") from error


def _cause(error: Exception) -> str:
    """An exception as one line: its kind and the line of its text that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Errors of MLIR begin with the place in the graph; exceptions that wrap others end with the cause.
    chosen = next((line for line in lines if "error:" in line.lower()), lines[0] if lines else "")
    text = f"{type(error).__name__}: {chosen}" if chosen else type(error).__name__
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."
