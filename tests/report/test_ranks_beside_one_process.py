"""A report says how long a step takes on ranks, as a multiple of the time of the same subject in one process."""

from dataclasses import replace

import pytest
from helpers.sampleresults import RESULT, SPEED, TRAINED

from xverify.report.notes import notes
from xverify.results.records import ProcessRun, Sample
from xverify.results.verdicts import SpeedVerdict
from xverify.workload.ranks import ONE_PROCESS

RUN = ProcessRun(0, 1.0, 1.0, 0.1, 0.1, 3, 0.1, True)


def row(subject, seconds, calls=2, **changes):
    """A row of two process runs, whose second call takes this many seconds, and a hundredth more in the second run."""
    samples = [Sample(0, 0, calls, calls * seconds * (1 + 0.01 * run), run) for run in (0, 1)]
    speed = replace(SPEED, samples=tuple(samples), launches=(RUN, replace(RUN, launch=1)), verdict=None, reason=None)
    return replace(TRAINED, subject=subject, speed=replace(speed, **changes))


def said(*rows):
    found = replace(RESULT, notes=(), rows=rows, settings=replace(RESULT.settings, ranks=2))
    return [each for each in notes(found) if each.startswith("Ranks: ")]


def test_each_subject_is_compared_with_its_own_row_in_one_process():
    rows = [
        row(f"torch:eager{ONE_PROCESS}", 1.0),
        row("torch:eager", 3.0),
        row(f"jax{ONE_PROCESS}", 0.5),
        row("jax", 0.75),
    ]
    assert said(*rows) == [
        "Ranks: torch:eager: a step on 2 ranks takes 3.000 (3.000–3.000) times as long as in one process",
        "Ranks: jax: a step on 2 ranks takes 1.500 (1.500–1.500) times as long as in one process",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [row("torch:eager", 3.0)],
        [row(f"torch:eager{ONE_PROCESS}", 1.0), row("torch:eager", 3.0, verdict=SpeedVerdict.REFUSED)],
        [row(f"torch:eager{ONE_PROCESS}", 1.0, verdict=SpeedVerdict.REFUSED), row("torch:eager", 3.0)],
        [row(f"torch:eager{ONE_PROCESS}", 1.0), replace(row("torch:eager", 3.0), speed=None)],
        [row(f"torch:eager{ONE_PROCESS}", 1.0), row("torch:eager", 3.0, samples=(Sample(9, 0, 1, 1.0, 5),))],
        [row(f"torch:eager{ONE_PROCESS}", 0.0), row("torch:eager", 3.0)],
        [row(f"torch:eager{ONE_PROCESS}", 1.0), row("torch:eager", 3.0, calls=0)],
    ],
    ids=["alone", "refused", "baseline refused", "not timed", "no common round", "no time", "no calls"],
)
def test_nothing_is_said_of_speeds_that_do_not_count_or_do_not_compare(rows):
    assert said(*rows) == []
