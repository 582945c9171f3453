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


# -- in a workflow on GitHub ------------------------------------------------------------------------------------------


def on_github(place):
    return {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(place.parent),
        "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
    }


def test_a_workflow_shows_a_summary_and_an_annotation_at_the_line_that_failed(tested):
    place = tested("").place
    (place / "summary.md").write_text("# of another step\n")
    done = tested(TEST, **on_github(place))
    assert done.code == 1
    text = (place / "summary.md").read_text()
    assert text.startswith("# of another step\n# FAIL: 4 results")
    [line] = [line for line in done.out.splitlines() if line.startswith("::error")]
    number = TEST.splitlines().index('    assert_port_equal("port", ["numpy", subject])') + 1
    name = "test_port.py%3A%3Atest_port[swapped]"
    assert line.startswith(f"::error file=repository/test_port.py,line={number},title={name}::")
    said = line.split("::")[2]
    assert "(swapped, DIFFERENT)%0A  port: 1 of 2 subjects EQUAL, 1 DIFFERENT%0A" in said
    assert "xverify: " not in done.out


@pytest.mark.slow
def test_the_processes_of_xdist_are_annotated_once(tested):
    pytest.importorskip("xdist")
    place = tested("").place
    done = tested(TEST, "-n", "2", **on_github(place))
    assert done.out.count("::error") == 1
    assert (place / "summary.md").read_text().count("# FAIL: 4 results") == 1


def test_a_model_that_cannot_be_run_is_annotated_and_another_failure_is_not(tested):
    place = tested("").place
    test = "def test_a(xverify_run):\n    xverify_run('prot', ['numpy'])\n\ndef test_b():\n    assert False\n"
    done = tested(test, **on_github(place))
    [line] = [line for line in done.out.splitlines() if line.startswith("::error")]
    assert line.startswith("::error file=repository/test_port.py,line=2,")
    assert "unknown model 'prot'" in line
    assert not (place / "summary.md").exists()


def test_hostile_names_in_a_workflow_end_no_command_and_begin_none(tested):
    place = tested("").place
    test = (
        "import pytest\nfrom xverify.testing import assert_port_equal\n\n"
        "@pytest.mark.parametrize('what', ['a,line=9::x\\n::error::y'])\n"
        "def test_port(what):\n    try:\n        assert_port_equal('port', ['numpy', 'swapped'])\n"
        "    except AssertionError as error:\n        raise AssertionError(what + '\\r::stop-commands::z') from None\n"
    )
    done = tested(test, **on_github(place))
    own = done.out.partition("short test summary info")[
        0
    ]  # in CI pytest prints messages whole there, a line of its own for each
    lines = [line for line in own.split("\n") if line.lstrip().startswith("::")]
    assert len(lines) == 1
    properties, text = lines[0].removeprefix("::error ").split("::", 1)
    assert [each.split("=")[0] for each in properties.split(",")] == ["file", "line", "title"]
    assert "::error::" not in text
    assert "\r" not in text


def test_a_summary_that_is_a_file_of_the_model_stays_as_it_is(tested):
    place = tested("").place
    before = (place / "port" / "spec.py").read_text()
    variables = {**on_github(place), "GITHUB_STEP_SUMMARY": str(place / "port" / "spec.py")}
    done = tested(TEST, **variables)
    assert (place / "port" / "spec.py").read_text() == before
    assert "xverify: GITHUB_STEP_SUMMARY" in done.out
    (place / "folder").mkdir()
    done = tested(TEST, **{**variables, "GITHUB_STEP_SUMMARY": str(place / "folder")})
    assert "xverify: GITHUB_STEP_SUMMARY is " in done.out
    assert done.code == 1
