"""The ways to compute a sequence: which there are, and which a model does not offer."""

from __future__ import annotations

from ..framework.decoding import DecoderOffers
from ..messages.decoding import Way

BACK = 3  # wrong tokens that are computed and taken back

FULL, ALONE = Way("full pass"), Way("full pass, alone", alone=True)
STEPS, STEPS_ALONE = Way("steps", chunks=(1,)), Way("steps, alone", chunks=(1,), alone=True)
PAIRS = {ALONE.name: FULL.name, STEPS_ALONE.name: STEPS.name}  # whose bits are compared


def ways(offers: DecoderOffers, length: int, threads: int) -> tuple[list[Way], dict[str, str]]:
    """(the ways to try, name of a way that the model does not offer -> what to add).

    length: tokens of a sequence. threads: of the run.
    """
    other = threads - 1 if threads > 1 else 2
    later = (length // 2, 1)
    found = [
        FULL,
        ALONE,
        Way(f"full pass, {other} thread{'s' * (other != 1)}", threads=other),
        STEPS,
        STEPS_ALONE,
        Way("chunks of 5, 3, 1", chunks=(5, 3, 1)),
        Way(f"{BACK} tokens taken back", chunks=later, back=BACK),
        Way("sequences reordered", chunks=later, reorder=True),
        *(Way(f"steps, {kind} cache", chunks=(1,), cache=kind) for kind in offers.kinds),
    ]
    padded = [
        Way("padded right", padding="right"),
        Way("padded left", padding="left"),
        Way("padded left, steps", padding="left", chunks=later),
    ]
    missing = [name for name, given in (("mask", offers.mask), ("positions", offers.positions)) if not given]
    if not missing:
        return [*found, *padded], {}
    advice = f"{offers.function} takes no {' and no '.join(missing)}: add the parameter{'s' * (len(missing) > 1)}"
    return found, {way.name: advice for way in padded}
