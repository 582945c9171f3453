"""Where a node comes from: the module and the line of source code that the exporter of torch wrote into the file."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from .model import Node

NAMES = "pkg.torch.onnx.name_scopes"
TRACE = "pkg.torch.onnx.stack_trace"
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


@dataclass(frozen=True)
class Source:
    """The origin of a node.

    module: name of the module in the torch model, such as "layer1.0.conv1"; "" when the file does not say.
    line: file and line of the source code, such as "model.py:12"; "" when the file does not say.
    """

    module: str = ""
    line: str = ""


def source(node: Node) -> Source:
    """The origin of a node, from its metadata or from its name."""
    metadata = {entry.key: entry.value for entry in getattr(node.proto, "metadata_props", ())}
    module = _from_scopes(metadata[NAMES]) if NAMES in metadata else ".".join(module_path(node.name))
    frames = list(FRAME.finditer(metadata.get(TRACE, "")))
    return Source(module, f"{frames[-1]['file']}:{frames[-1]['line']}" if frames else "")


def module_path(name: str) -> tuple[str, ...]:
    """The modules in the name of a node: "/layer1/layer1.0/conv1/Conv" is in layer1.0, conv1.

    The name of an item of a list or a sequence includes the name of the list, and takes its place.
    """
    parts: list[str] = []
    for part in name.split("/")[1:-1]:
        if parts and part.startswith(parts[-1] + "."):
            parts[-1] = part
        else:
            parts.append(part)
    return tuple(parts)


def _from_scopes(written: str) -> str:
    """The innermost module in the list of scopes, of which the last one is the operation itself."""
    try:
        scopes = [str(scope) for scope in ast.literal_eval(written)]
    except (ValueError, SyntaxError):
        return ""
    return next((scope for scope in reversed(scopes[:-1]) if scope), "")
