"""Results as JUnit XML, which CI servers read: a case for each row, each training-parity check, and each layer that differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal
from xml.etree import ElementTree as ET

from ..errors import shown
from ..results.records import Check, LayerError, Layers, Result, Row
from ..results.verdicts import Outcome, Verdict
from . import content, limits
from .bounded import possible
from .cells import at
from .text import one_line

Ending = Literal["passed", "failure", "error", "skipped"]
LONGEST_NAME = 200  # characters of the name of a case
# Name of a figure of a row -> its path.
FIGURES = {
    "relative error": "error.rel_rms",
    "residual / noise floor": "error.noise_ratio",
    "detection limit": "error.detection_limit",
    "fps": "counted.fps",
    "time ratio": "counted.ratio",
    "peak MiB": "memory.peak_rss_mib",
}


@dataclass(frozen=True)
class Case:
    """One test case.

    name, group: what was tested, and what it belongs to.
    ending: how it ended. kind: the verdict or status. says: why; "" when there is nothing to say.
    seconds: duration of what was timed; None when nothing was.
    properties: name -> figure.
    """

    name: str
    group: str
    ending: Ending
    kind: str = ""
    says: str = ""
    seconds: float | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """The cases of one result, or of one comparison. created: time of the start, ISO 8601. says: the verdict on the whole."""

    name: str
    cases: tuple[Case, ...]
    created: str = ""
    seconds: float | None = None
    properties: dict[str, str] = field(default_factory=dict)
    says: str = ""


def report(results: Sequence[Result]) -> str:
    """These results as JUnit XML."""
    return written(suite(result) for result in results)


def suite(result: Result) -> Suite:
    """The cases of a result. Some case fails exactly when the verdict on the run does."""
    cases = [case for row in result.rows for case in _of_row(result, row)]
    failing = result.verdict in (Outcome.FAIL, Outcome.ERROR)
    if not failing:  # --accept decides instead of the verdicts of rows
        cases = [replace(case, ending="passed") if case.ending in ("failure", "error") else case for case in cases]
    if not result.rows or (failing and all(case.ending in ("passed", "skipped") for case in cases)):
        says = "; ".join(result.notes) if result.rows else "there are no rows: nothing was compared"
        failed: Ending = "failure" if result.verdict == Outcome.FAIL else "error"
        cases.append(Case("the whole run", result.model, failed, result.verdict, says))
    return Suite(
        result.model,
        tuple(cases),
        result.created,
        result.timeline.get("total_seconds"),
        {
            "verdict": result.verdict,
            "xverify": result.xverify,
            "cpu": result.host.cpu,
            "system": result.host.system,
            "weights": result.weights.digest or "",
            "inputs": result.inputs.digest or "",
            "rule": result.rule,
        },
        "\n".join([content.conclusion(result), *map(one_line, limits.too_noisy(result))]),
    )


def _of_row(result: Result, row: Row) -> Iterator[Case]:
    """A case for a row, one for each of its checks, and one for each layer that differs."""
    group = f"{result.model}.{row.task}"
    says = row.why or ""
    timed = row.speed.elapsed_seconds if row.speed is not None else None
    ending = _ending(row.error.verdict, result.settings.strict) if row.error is not None else "skipped"
    if row.status != "ok" and ending != "failure":
        ending = "error"  # it did not run to its end; it may have a verdict
    kind = content.verdict(row)
    if row.misses_gate:
        ending, kind, says = "failure", "--accept", f"--accept: {row.gate}"
    elif row.accepted:
        ending = "passed"
    if row.reproducer:
        says = "; ".join(filter(None, (says, f"reproducer: {row.reproducer}")))
    yield Case(row.subject, group, ending, kind, says, timed, _figures(row))
    below = f"{group}.{row.subject}"
    for check in row.training.checks if row.training is not None else ():
        yield _of_check(check, below, result.settings.strict)
    if ending == "failure":
        layers = row.layers or Layers()
        for layer in layers.layers:
            if layer.verdict.fails:
                yield _of_layer(layer, layers.describe(layer), below)


def _ending(verdict: Verdict, strict: bool) -> Ending:
    if verdict.fails or (strict and verdict == Verdict.DRIFT):
        return "failure"
    return "skipped" if verdict == Verdict.UNTESTED else "passed"


def _of_check(check: Check, group: str, strict: bool) -> Case:
    named = bool(check.difference)  # a known difference of the framework is no fault
    figures = {} if check.ratio is None else {"ratio": repr(check.ratio)}
    return Case(
        check.label, group, _ending(check.verdict, strict and not named), check.verdict,
        check.says or check.difference, None, figures,
    )  # fmt: skip


def _of_layer(layer: LayerError, says: str, group: str) -> Case:
    figures = {"R": repr(layer.ratio), "C": repr(layer.channel_ratio), "input R": repr(layer.input_ratio)}
    if layer.detection_limit is not None:
        figures["detection limit"] = repr(layer.detection_limit)
    return Case(f"layer {layer.layer}", group, "failure", layer.verdict, says, None, figures)


def _figures(row: Row) -> dict[str, str]:
    """The figures of a row that are known and count."""
    known = {name: at(row, path) for name, path in FIGURES.items()}
    known["fps at least"] = possible(row.speed.at_least) if row.speed is not None else None
    for output, figures in row.figures.items() if row.gate else ():
        known |= {f"{name} of {output}": value for name, value in asdict(figures).items() if name != "says"}
    return {name: repr(value) for name, value in known.items() if value is not None}


# -- XML --------------------------------------------------------------------------------------------------------------


def written(suites: Iterable[Suite]) -> str:
    """Suites as XML."""
    root = ET.Element("testsuites", name="xverify")
    for each in suites:
        root.append(_suite_element(each))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite_element(suite: Suite) -> ET.Element:
    counts = {name: sum(case.ending == name for case in suite.cases) for name in ("failure", "error", "skipped")}
    element = ET.Element(
        "testsuite", name=_short(suite.name), tests=str(len(suite.cases)), failures=str(counts["failure"]),
        errors=str(counts["error"]), skipped=str(counts["skipped"]), timestamp=_short(suite.created),
        time=_seconds(suite.seconds),
    )  # fmt: skip
    _add_properties(element, suite.properties)
    for case in suite.cases:
        made = ET.SubElement(
            element, "testcase", name=_short(case.name), classname=_short(case.group), time=_seconds(case.seconds)
        )
        _add_properties(made, case.properties)
        if case.ending != "passed":
            told = ET.SubElement(made, case.ending, message=one_line(case.says) or case.kind)
            if case.ending != "skipped":
                told.set("type", _short(case.kind))
                told.text = shown(case.says)
        elif case.says or case.kind == Verdict.DRIFT:
            ET.SubElement(made, "system-out").text = f"{case.kind}: {shown(case.says) or 'a warning'}"
    if suite.says:
        ET.SubElement(element, "system-out").text = suite.says
    return element


def _add_properties(element: ET.Element, properties: dict[str, str]) -> None:
    if properties:
        inside = ET.SubElement(element, "properties")
        for name, value in properties.items():
            ET.SubElement(inside, "property", name=_short(name), value=one_line(value))


def _short(text: str) -> str:
    return one_line(text, LONGEST_NAME)


def _seconds(value: float | None) -> str:
    """Seconds without an exponent; "0" when they are unknown or not finite."""
    return f"{value:.6f}" if value is not None and 0 <= value < 1e9 else "0"
