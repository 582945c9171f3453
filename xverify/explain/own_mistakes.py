"""Where a user's own training step has a mistake, and the known mistakes there, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .own_clipping import clipping
from .own_copies import copies
from .own_elsewhere import elsewhere
from .own_gradients import gradients, scales
from .own_inputs import inputs
from .own_losses import factors, losses, numbers, numbers_elsewhere
from .own_mistake import Mistakes, every
from .own_settings import schedules, settings
from .own_statistics import statistics

# Where a mistake is -> catalogues. A later catalogue is tried only where none of those before explains the port.
# "update": it is not known whether gradients or settings differ. An optimizer may clip the gradients that it is given, which is
# then one of its settings. "gradients": a step may add the weight decay to them itself. "losses": the weights agree, and a loss
# that the step returns does not.
ELSEWHERE = (elsewhere, numbers_elsewhere, inputs, factors)
PLACES: Mapping[str, Sequence[Mistakes]] = {
    "update": (every(gradients, clipping, copies, settings, losses), schedules, numbers, *ELSEWHERE),
    "gradients": (every(gradients, clipping, copies, losses), scales, settings, numbers, *ELSEWHERE),
    "losses": (every(copies, losses), numbers, *ELSEWHERE),
    "settings": (every(settings, clipping), schedules, elsewhere, numbers_elsewhere),
    "statistics": (statistics, copies),
}
