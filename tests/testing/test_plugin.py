"""The plugin of pytest: the report of a whole test run, and what the plugin costs where nobody uses it."""

import json
from html.parser import HTMLParser

import junitparser
import pandas
import pytest
from conftest import small_disk

TEST = """
import pytest
from xverify.testing import assert_port_equal

@pytest.mark.parametrize("subject", ["honest", "swapped"])
def test_port(subject):
    assert_port_equal("port", ["numpy", subject])

def test_run(xverify_run):
    xverify_run("port", ["numpy", "breaks"])
    xverify_run("port", ["numpy", "absent"])

def test_nothing():
    pass
"""


def test_the_report_has_the_results_of_all_tests_in_every_format(tested):
    names = [f"out.{ending}" for ending in ("html", "md", "json", "xml", "csv")]
    done = tested(TEST, *(f"--xverify-report={name}" for name in names))
    assert done.code == 1
    assert "3 passed" in done.out
    assert all(f"xverify: 4 results in {done.place / name}" in done.out for name in names), done.out
    html, markdown, values, junit, csv = (done.place / name for name in names)
    assert "<h1" in html.read_text()
    HTMLParser().feed(html.read_text())
    assert markdown.read_text().startswith("# FAIL: 4 results")
    results = json.loads(values.read_text())
    assert [[row["subject"] for row in each["rows"]] for each in results] == [
        ["numpy", "honest"],
        ["numpy", "swapped"],
        ["numpy", "breaks"],
        ["numpy", "absent"],
    ]
    assert results[1]["notes"][-1] == "test: test_port.py::test_port[swapped]"
    suites = list(junitparser.JUnitXml.fromfile(str(junit)))
    assert [suite.failures + suite.errors > 0 for suite in suites] == [False, True, True, True]
    assert list(pandas.read_csv(csv)["subject"]) == [
        "numpy",
        "honest",
        "numpy",
        "swapped",
        "numpy",
        "breaks",
        "numpy",
        "absent",
    ]


@pytest.mark.slow
def test_the_report_has_the_results_of_the_processes_of_xdist(tested):
    pytest.importorskip("xdist")
    done = tested(TEST, "-n", "2", "--xverify-report=out.json")
    assert "3 passed" in done.out
    assert "xverify: 4 results in" in done.out
    results = json.loads((done.place / "out.json").read_text())
    assert [each["rows"][1]["subject"] for each in results] == ["honest", "swapped", "breaks", "absent"]


def test_a_run_without_a_model_has_a_report_that_says_so(tested):
    (report := tested("def test_nothing():\n    pass\n", "--xverify-report=out.md").place / "out.md").exists()
    assert report.read_text().startswith("# INCONCLUSIVE: 0 results")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("out.txt", "the ending tells the format; known: .html, .md, .json, .xml, .csv"),
        ("none/out.md", "none does not exist"),
        ("port", "the ending tells the format"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_any_test(tested, file, says):
    done = tested(TEST, f"--xverify-report={file}")
    assert done.code == 4
    assert says in done.out
    assert "collected" not in done.out


def test_a_full_disk_is_said_and_gives_an_exit_code(tested, tmp_path):
    with small_disk(tmp_path / "small", "4k") as small:
        done = tested(
            "def test_port(xverify_run):\n    xverify_run('port', ['numpy', 'honest'])\n",
            f"--xverify-report={small / 'out.json'}",
        )
    assert done.code == 3, done.out
    assert "out.json cannot be written: No space left on device" in done.out
    assert "1 passed" in done.out


@pytest.mark.slow
def test_a_test_run_that_does_not_use_the_plugin_imports_nothing_for_it(tested):
    done = tested("", process=True)
    (done.place / "conftest.py").write_text(
        "import sys\n\n\ndef pytest_sessionfinish():\n"
        "    wanted = ('xverify', 'numpy', 'rich', 'msgspec', 'scipy')\n"
        "    print('LOADED', sorted(name for name in sys.modules if name.partition('.')[0] in wanted))\n"
    )
    done = tested("", "--collect-only", "-s", process=True)
    assert (
        "LOADED ['xverify', 'xverify.testing', 'xverify.testing.asserting', 'xverify.testing.plugin', 'xverify.version']"
        in done.out
    )
    assert "xverify_run" in tested("", "--fixtures", process=True).out
    assert "xverify_run" not in tested("", "--fixtures", "-p", "no:xverify", process=True).out
