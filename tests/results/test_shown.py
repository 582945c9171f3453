"""Reports of a result in Python and in notebooks."""

import re
import subprocess
import sys
from pathlib import Path

from helpers.sampleresults import RESULT

from xverify.report import csv, html, markdown
from xverify.results.file import write

DOCS = Path(__file__).parents[2] / "docs" / "report.md"


def test_a_result_gives_its_reports():
    assert RESULT.to_html() == html.page([RESULT])
    assert RESULT.to_markdown() == markdown.report([RESULT])
    assert RESULT.to_dataframe().equals(csv.data_frame([RESULT]))


def test_a_notebook_shows_the_page_in_a_frame():
    shown = RESULT._repr_html_()
    [inside] = re.findall(r'<iframe [^>]*sandbox srcdoc="([^"]*)"></iframe>', shown)
    assert inside.startswith("&lt;!doctype html&gt;")
    assert "<" not in inside


def test_a_result_imports_no_report_before_it_is_asked_for_one():
    code = "import sys, xverify.results.records; print([name for name in sys.modules if name.startswith('xverify.report')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch, capsys):
    """What stands after the run, with a result that is known."""
    text = DOCS.read_text()
    [block] = re.findall(r"^```python\n(.*?)^```", text[text.index("## Other formats") :], re.MULTILINE | re.DOTALL)
    run, rest = re.split(r"(?<=\))\n\n", block, maxsplit=1)
    assert "result = xverify.run(" in run
    monkeypatch.chdir(tmp_path)
    write(RESULT, "result.json")
    names = {"result": RESULT, "Path": Path}
    exec(rest, names)
    assert Path("report.html").read_text() == RESULT.to_html()
    assert "jittor" in capsys.readouterr().out
