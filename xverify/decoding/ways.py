"""The ways to compute a sequence: which there are, and which a model does not offer."""

from __future__ import annotations

from ..framework.decoding import DecoderOffers, Way

BACK = 3  # wrong tokens that are computed and taken back

FULL, ALONE = Way("full pass"), Way("full pass, alone", alone=True)
STEPS, STEPS_ALONE = Way("steps", chunks=(1,)), Way("steps, alone", chunks=(1,), alone=True)
PADDED = Way("padded right", padding="right")
PAIRS = {ALONE.name: FULL.name, STEPS_ALONE.name: STEPS.name}  # whose bits are compared


def ways(offers: DecoderOffers, length: int, threads: int, more: bool) -> tuple[list[Way], dict[str, str]]:
    """(the ways to try, name of a way that the model does not offer -> what to add).

    length: tokens of a sequence. threads: of the run. more: whether every call is given further inputs.
    """
    other = threads - 1 if threads > 1 else 2
    later = (length // 2, 1)
    whole = [FULL, ALONE, Way(f"full pass, {other} thread{'s' * (other != 1)}", threads=other)]
    kinds = [Way(f"steps, {kind} cache", chunks=(1,), cache=kind) for kind in offers.kinds]
    cached = [
        STEPS,
        STEPS_ALONE,
        Way("chunks of 5, 3, 1", chunks=(5, 3, 1)),
        Way(f"{BACK} tokens taken back", chunks=later, back=BACK),
        Way("sequences reordered", chunks=later, reorder=True),
        *kinds,
    ]
    padded = [
        PADDED,
        Way("padded left", padding="left"),
        Way("padded left, steps", padding="left", chunks=later),
    ]
    placed = offers.positions or offers.unplaced
    missing = [name for name, given in (("mask", offers.mask), ("positions", placed)) if not given]
    found = [*whole, *cached, *padded]
    not_tried = {way.name: offers.lacks for way in found if way.chunks and offers.lacks}
    if more:
        not_tried |= {way.name: "the model makes the cache of its further inputs itself" for way in kinds}
    if missing:
        advice = f"{offers.function} takes no {' and no '.join(missing)}: add the parameter{'s' * (len(missing) > 1)}"
        not_tried = {**{way.name: advice for way in padded}, **not_tried}
    return [way for way in found if way.name not in not_tried], {**not_tried, **offers.untried}
