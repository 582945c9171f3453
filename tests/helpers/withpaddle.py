"""Programs that run with PaddlePaddle, and the reason why tests that need it are skipped."""

from functools import partial

from . import apart

NEEDS_PADDLE = apart.needs("paddle", "PaddlePaddle")
inside = partial(apart.inside, "paddle")
