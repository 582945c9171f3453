"""torchvision beside a build of torch that its compiled operators do not fit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def declare_torchvision_ops(torch: Any) -> None:
    """Make torchvision importable where its compiled operators cannot be loaded.

    torchvision from the package index is built for the CUDA build of torch. Beside a CPU build of torch its import fails with
    "operator torchvision::nms does not exist". The classification models do not use these operators, so it is enough to declare
    their schemas.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None or sys.platform == "win32" or hasattr(torch, "_xverify_torchvision"):
        return
    compiled = Path(found.origin).with_name("_C.so")
    try:
        torch.ops.load_library(str(compiled))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch._xverify_torchvision = library  # the declaration is valid as long as this object exists
