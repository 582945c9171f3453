"""Results as the runs of a reproduction return them."""

from dataclasses import replace

from xverify.results.conditions import Host, InputsSummary, ReferenceSummary, Settings, WeightsSummary
from xverify.results.records import Error, Memory, Result, Row, Sample, Speed


def row(subject, seconds, **changes):
    speed = Speed(
        8 / seconds, (None, None), seconds, 20 * seconds, 20, 1, 1.0, (None, None), None, None, 1.0, 1.0, 1.0, 1.0,
        (Sample(0, 0, 20, 20 * seconds),),
    )  # fmt: skip
    framework = subject.partition(":")[0]
    made = Row(
        subject, framework, "eager", "forward", "cpu", 8, "ok", weights_digest="sha256:1", speed=speed,
        error=Error("EQUAL", None, 1e-5, 1e-4, 1e-6), memory=Memory(100.0, 90.0), environment={framework: "1.0"},
    )  # fmt: skip
    return replace(made, **changes)


def result(*rows, **changes):
    host, settings = Host("a processor"), Settings(threads=2, device="cpu")
    others = InputsSummary(), ReferenceSummary()
    made = Result(
        "mlp", ("forward",), "PASS", rows, "now", "0", host, settings, WeightsSummary("sha256:1"), *others, "rule"
    )
    return replace(made, **changes)
