"""Results with a text from elsewhere in one field each."""

import copy
from dataclasses import replace
from functools import cache

from helpers.sampleresults import FORWARD, RESULT, TRAINED, of_files
from xverify.errors import UsageError
from xverify.results.figures import Figures
from xverify.results.file import decoded
from xverify.results.records import LayerError
from xverify.results.verdicts import Verdict

LINES = "x\nPASS everything\n::error::x"
TEXT = f"{LINES} [bold]y[/] http://evil.example www.evil.example @someone #12 ##[error]z"


def texts(values, place=()):
    """The places of all texts and of all names in JSON values."""
    if isinstance(values, dict):
        yield from (
            (*place, name, None)
            for name in values
            if place[-1:] in (("matched",), ("failed",), ("figures",), ("folded",))
        )
        values = values.items()
    elif isinstance(values, list):
        values = enumerate(values)
    else:
        yield from [place] if isinstance(values, str) else []
        return
    for key, value in values:
        yield from texts(value, (*place, key))


def changed(values, place, text):
    """The values with this text in a place; None at its end stands for the name of the last entry."""
    values = copy.deepcopy(values)
    *above, last = place
    named = last is None
    if named:
        *above, last = above
    inside = values
    for key in above:
        inside = inside[key]
    if named:
        inside[text] = inside.pop(last)
    else:
        inside[last] = text
    return values


@cache
def samples(text=TEXT):
    """Results each of which has the text in one field; one for each field of each record."""
    layer = LayerError(
        "fc3",
        "Linear",
        1,
        9e9,
        9e9,
        0.0,
        Verdict.DIFFERENT,
        explanation="e",
        glue="g",
        source="s",
        after="a",
        joined="j",
    )
    layers = replace(
        FORWARD.layers, layers=(*FORWARD.layers.layers, layer), failed={"a": "b"}, notes=("n",), stopped="s"
    )
    forward = replace(FORWARD, error=replace(FORWARD.error, layers=layers), matched=("m",), notes=("n",))
    refused = replace(forward, speed=replace(forward.speed, verdict="REFUSED", reason="r", not_counted="n"))
    run = replace(RESULT, rows=(forward, TRAINED, refused, RESULT.rows[2]))
    files = of_files()
    rows = tuple(
        replace(row, figures={"y": Figures(1.0, says="s")}, matched=("m",), notes=("n",)) for row in files.rows
    )
    weights = replace(RESULT.weights, folded={"jittor": ("w",)}, folded_digests={"jittor": "sha256:4"})
    found = {}
    for sample in (replace(run, weights=weights), replace(files, rows=rows)):
        values = sample.to_dict()
        for place in texts(values):
            kind = (place[:2] if place[-1] == "subject" else (), *(key for key in place if not isinstance(key, int)))
            if kind in found or "environment" in place:
                continue
            made = changed(values, place, text)
            try:
                decoded(made, "sample")
            except UsageError:  # a verdict, or a task without rows
                continue
            found[kind] = made
    return list(found.values())
