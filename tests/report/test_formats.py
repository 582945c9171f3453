"""Markdown, JUnit XML, CSV and JSON of results, read by programs that others wrote."""

import csv as standard_csv
import io
import json
import math
from dataclasses import replace
from html.parser import HTMLParser

import cmarkgfm
import junitparser
import pandas
import pytest
from cmarkgfm.cmark import Options
from helpers.sampleresults import ABSENT, FORWARD, HOSTILE, RESULT, SPEED, hostile, of_files, unusual

from xverify.errors import UsageError, printable
from xverify.report import csv, junit, markdown
from xverify.results.records import Check, Training
from xverify.results.verdicts import Outcome, Verdict

ELEMENTS = {
    "h1",
    "h2",
    "p",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "ul",
    "li",
    "strong",
    "del",
    "details",
    "summary",
}


class Page(HTMLParser):
    """The elements, attributes and text of a page, and the texts of its cells by row."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.text, self.rows, self.struck = set(), set(), "", [], []
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.open.remove(tag)

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if "del" in self.open:
            self.struck.append(data)


def rendered(*results):
    return Page(cmarkgfm.github_flavored_markdown_to_html(markdown.report(results), Options.CMARK_OPT_UNSAFE))


def suites(*results):
    return list(junitparser.JUnitXml.fromstring(junit.report(results).encode()))


def cases(*results):
    return {f"{case.classname}: {case.name}": case for suite in suites(*results) for case in suite}


def frame(*results):
    return pandas.read_csv(io.StringIO(csv.report(results)))


def kind(case):
    return case.result[0].type if case.result else None


# -- Markdown ---------------------------------------------------------------------------------------------------------


def test_markdown_has_the_verdict_the_table_and_the_reasons():
    page = rendered(RESULT)
    assert "FAIL: mlp, forward, train" in page.text
    assert "0 of 3 subjects EQUAL, 1 DIFFERENT, 1 DRIFT, 1 not-installed." in page.text
    head, first, *_ = page.rows
    assert head[:2] == ["subject", "task"]
    assert first[0] == "jittor"
    assert first[head.index("verdict")] == "DIFFERENT"
    assert "tensorlayer: pip install tensorlayer" in page.text.replace(", forward", "")
    assert "DRIFT eps-hat" in page.text


def test_a_speed_that_does_not_count_is_struck_out_in_markdown():
    refused = replace(FORWARD, speed=replace(SPEED, verdict="REFUSED", reason="noise", not_counted="TOO NOISY"))
    page = rendered(replace(RESULT, rows=(refused,)))
    assert page.struck == ["132,500"]
    assert "132,500 not counted" in page.rows[1]
    assert rendered(RESULT).struck == []


def test_several_results_begin_with_a_table_of_all():
    page = rendered(RESULT, replace(RESULT, model="vgg", verdict=Outcome.PASS))
    assert page.text.startswith("FAIL: 2 results")
    assert [row[:3] for row in page.rows[:3]] == [
        ["model", "tasks", "verdict"],
        ["mlp", "forward, train", "FAIL"],
        ["vgg", "forward, train", "PASS, 1 warning"],
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_as_they_are_in_markdown(name):
    page = rendered(hostile(HOSTILE[name]))
    assert page.elements <= ELEMENTS
    assert page.attributes <= {"align"}
    shown = printable(" ".join(HOSTILE[name][:500].split()))
    assert shown[:100] in " ".join(page.text.split())
    widths = [len(row) for row in page.rows]
    assert set(widths[:5]) == {widths[0]}


def test_a_name_mentions_nobody():
    assert "@<!-- -->someone" in markdown.report([hostile("@someone")])
    assert "@someone" not in markdown.report([hostile("@someone")])


@pytest.mark.parametrize("name", unusual())
def test_unusual_results_have_a_report_in_every_format(name):
    result = unusual()[name]
    assert rendered(result).elements <= ELEMENTS
    assert len(frame(result)) == len(result.rows)
    [suite] = suites(result)
    failing = any(case.result and kind(case) for case in suite)
    assert failing == (result.verdict in (Outcome.FAIL, Outcome.ERROR) or not result.rows)


# -- JUnit ------------------------------------------------------------------------------------------------------------


def test_junit_has_a_case_for_each_row_and_for_the_layer_that_differs():
    found = cases(RESULT)
    assert list(found) == [
        "mlp.forward: jittor",
        "mlp.forward.jittor: layer fc2",
        "mlp.train: keras-jax",
        "mlp.train.keras-jax: weights, step 0",
        "mlp.train.keras-jax: update, step 0",
        "mlp.forward: tensorlayer",
    ]
    row, layer, drift, *_, absent = found.values()
    assert isinstance(row.result[0], junitparser.Failure)
    assert (row.result[0].type, row.result[0].message) == ("DIFFERENT", "fc2: output has shape (4, 2)")
    assert isinstance(layer.result[0], junitparser.Failure)
    assert "fc2" in layer.result[0].message
    assert drift.result == []
    assert "DRIFT" in drift.system_out
    assert isinstance(absent.result[0], junitparser.Error)
    assert absent.result[0].type == "not-installed"
    [suite] = suites(RESULT)
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 2, 1, 0)


def test_a_check_that_differs_fails_and_what_was_not_tested_is_skipped():
    training = Training(
        "sgd", checks=(Check("loss", 0, "DIFFERENT", 50.0, "mean for sum"), Check("update", 0, "UNTESTED"))
    )
    row = replace(RESULT.rows[1], error=replace(FORWARD.error, layers=None), training=training)
    found = cases(replace(RESULT, rows=(row,)))
    assert found["mlp.train.keras-jax: loss, step 0"].result[0].message == "mean for sum"
    assert isinstance(found["mlp.train.keras-jax: update, step 0"].result[0], junitparser.Skipped)


def test_drift_fails_with_strict_alone():
    drift = replace(FORWARD, error=replace(FORWARD.error, verdict=Verdict.DRIFT, layers=None))
    result = replace(RESULT, rows=(drift,))
    assert kind(cases(replace(result, verdict=Outcome.PASS))["mlp.forward: jittor"]) is None
    strict = replace(result, settings=replace(result.settings, strict=True))
    assert kind(cases(strict)["mlp.forward: jittor"]) == "DRIFT"


def test_conditions_that_decide_instead_of_verdicts_decide_in_junit():
    files = of_files()
    assert not any(map(kind, cases(replace(files, verdict=Outcome.PASS)).values()))
    equal = replace(files, rows=files.rows[:1], verdict=Outcome.FAIL, notes=("top1 is 0.5: at least 0.99 is asked",))
    assert cases(equal)["model.onnx: the whole run"].result[0].message == "top1 is 0.5: at least 0.99 is asked"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless_in_junit(name):
    found = cases(hostile(HOSTILE[name]))
    shown = printable(" ".join(HOSTILE[name][:100].split())).split()
    assert found
    assert all(word in " ".join(found) for word in shown)


# -- CSV --------------------------------------------------------------------------------------------------------------


def test_csv_has_the_figures_of_every_row():
    found = frame(RESULT, replace(RESULT, model="vgg"))
    assert list(found["subject"]) == ["jittor", "keras-jax", "tensorlayer"] * 2
    assert list(found["model"]) == ["mlp"] * 3 + ["vgg"] * 3
    first = found.iloc[0]
    assert (first["fps"], first["fps_low"], first["time_ratio"]) == (132523.9, 125234.6, 1.06)
    assert math.isnan(first["fps_high"])
    assert first["first_faulty_layer"] == "fc2"
    assert first["verdict"] == "DIFFERENT"


def test_a_speed_that_does_not_count_is_empty_in_csv():
    refused = replace(FORWARD, speed=replace(SPEED, verdict="REFUSED", reason="noise", not_counted="TOO NOISY"))
    first = frame(replace(RESULT, rows=(refused, FORWARD))).iloc[0]
    assert math.isnan(first["fps"])
    assert math.isnan(first["time_ratio"])
    assert first["speed_not_counted"] == "TOO NOISY"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless_in_csv(name):
    text = csv.report([hostile(HOSTILE[name])])
    head, *rows = standard_csv.reader(io.StringIO(text))
    assert all(len(row) == len(head) for row in rows)
    assert len(rows) == 4
    assert all(cell.isprintable() and cell[:1] not in ("=", "+", "@") for row in rows for cell in row)


def test_a_data_frame_has_the_columns_of_the_csv():
    found = csv.data_frame([RESULT])
    assert list(found.columns) == list(csv.COLUMNS)
    assert type(found["verdict"][0]) is str
    assert found["fps"][0] == 132523.9


def test_a_data_frame_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        csv.data_frame([RESULT])


def test_json_of_hostile_and_unusual_results_is_json():
    for result in [*map(hostile, HOSTILE.values()), *unusual().values()]:
        json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert ABSENT in RESULT.rows
