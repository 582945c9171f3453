"""Result files of a series: one result, varied by hand, as it would be after an update of something."""

from dataclasses import replace

from helpers.sampleresults import FORWARD, RESULT, SPEED, TRAINED
from xverify.results.file import write
from xverify.results.records import Memory
from xverify.results.verdicts import Outcome, SpeedVerdict, Verdict

OF_TORCH = {"torch": "2.13.0", "threads": 2}
BASELINE = replace(
    FORWARD, subject="torch:eager", framework="torch", environment=OF_TORCH, memory=Memory(250.0, 240.0, 200.0),
    error=replace(FORWARD.error, verdict=Verdict.IDENTICAL, reason=None, layers=None, noise_ratio=0.4),
    speed=replace(SPEED, ratio=1.0, ratio_ci=(1.0, 1.0), verdict=SpeedVerdict.BASELINE),
)  # fmt: skip


def row(
    verdict="EQUAL",
    ratio=1.10,
    width=0.02,
    speed="SLOWER",
    rho=0.5,
    memory=270.0,
    device=None,
    jittor="1.3.10",
    **others,
):
    """A row of jittor. width: half the width of the interval of its time ratio. device: peak memory of the device."""
    made = replace(
        FORWARD, environment={"jittor": jittor, "threads": 2}, memory=Memory(memory, 260.0, 240.0, device),
        error=replace(FORWARD.error, verdict=Verdict(verdict), noise_ratio=rho, layers=None),
        speed=replace(SPEED, ratio=ratio, ratio_ci=(ratio - width, ratio + width), verdict=speed, noisy=False),
    )  # fmt: skip
    return replace(made, **others)


def result(day=1, *, rows=None, baseline=BASELINE, model="mlp", task="forward", settings=(), host=(), **varied):
    """The result of a day of November 2026: torch:eager, and a row of jittor with what ``row`` takes."""
    names = {name: varied.pop(name) for name in ("xverify", "weights", "inputs", "created") if name in varied}
    made = replace(
        RESULT, model=model, tasks=(task,), verdict=Outcome.PASS, created=f"2026-11-{day:02}T10:00:00+00:00",
        rows=(baseline, *((row(**varied),) if rows is None else rows)), reference=replace(RESULT.reference, environment={}),
        settings=replace(RESULT.settings, task=task, optimizer=None, **dict(settings)), host=replace(RESULT.host, **dict(host)),
    )  # fmt: skip
    return replace(made, **names)


def trained(day=1, ratio=2.0, **settings):
    """A result of a training run. ratio: residual / noise floor of its check."""
    check = replace(TRAINED.training.checks[1], ratio=ratio, difference="")
    made = replace(TRAINED, training=replace(TRAINED.training, checks=(check,)), subject="jittor")
    return replace(
        result(day, rows=(made,), baseline=replace(BASELINE, task="train"), task="train"),
        settings=replace(RESULT.settings, task="train", **settings),
    )


def keep(folder, *results):
    """Write the results to r1.json, r2.json, ... in a folder. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(results, 1):
        write(each, folder / f"r{number}.json")
    return folder
