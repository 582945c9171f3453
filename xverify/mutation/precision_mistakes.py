"""Mistakes in mixed precision, which ``xverify mutate --task train`` plants in ports of torch (see worker.mistakes)."""

from __future__ import annotations

from ..workload.optimizers import optimizer
from ..workload.recipe import Recipe
from .mistakes import Mistake

LOWER = optimizer("sgd", momentum=0.9, recipe=Recipe(precision="bfloat16"))
# Every model's gradients reach the limit of the clipping.
SCALED = optimizer("sgd", momentum=0.9, recipe=Recipe(precision="float16", clip_norm=1e-4))
UNSCALE = "divide them by the scale of the loss"
PRECISION_MISTAKES = (
    Mistake(
        "gradient x 1.3 in bfloat16", "gradients", "1.3 times the right one", LOWER, None, "gradient scaled", share=0.3
    ),
    Mistake("weights kept in bfloat16", "update", "rounded to bfloat16", LOWER, None, "bfloat16 weights"),
    Mistake("clipped before unscaling", "unscaling", UNSCALE, SCALED, None, "clip scaled"),
    Mistake("loss scale kept", "unscaling", UNSCALE, SCALED, None, "scale kept"),
    Mistake("infinite gradients not skipped", "scaling", "it must be skipped", SCALED, None, "never skipped"),
)
