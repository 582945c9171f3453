"""Text from files stays text: no line of an output is one of theirs, no markup of theirs is obeyed, and no link is made."""

import json
import re
from dataclasses import replace

import cmarkgfm
import numpy as np
import pytest
from cmarkgfm.cmark import Options
from conftest import write_folder
from helpers.foreigntext import LINES, TEXT, samples
from helpers.sampleresults import FORWARD, RESULT

from xverify.errors import XverifyError, shown
from xverify.report import markdown
from xverify.results.records import LayerError
from xverify.results.verdicts import Verdict

# A line that a reader takes for a verdict, or a CI service for a command.
OBEYED = re.compile(r"PASS everything|\s*::|.*##\w*\[")


@pytest.fixture
def folder(tmp_path):
    return write_samples(tmp_path)


def write_samples(place, text=TEXT):
    """A folder with a file of each sample, and a good one beside it."""
    made = place / "samples"
    made.mkdir()
    for index, values in enumerate(samples(text)):
        (made / f"{index}.json").write_text(json.dumps(values))
    (place / "good.json").write_text(json.dumps(RESULT.to_dict()))
    return made


def check_lines(said):
    """No line is theirs, and where the text stands its markup is as it was written, up to where it was cut."""
    wrong = [line for line in said.splitlines() if OBEYED.match(line)]
    assert not wrong, wrong[0]
    for found in re.findall(r"x3a:error::x (.{0,10})", said.replace("\\", "")):
        written = re.split(r"…|\s{2}|<|&|'|\"", found)[0]
        assert "[bold]y[/]".startswith(written), found


def test_there_are_samples_of_many_fields():
    assert len(samples()) > 100


@pytest.mark.parametrize(
    "words",
    [
        ["report", "FILE"],
        ["report", "FILE", "--details"],
        ["report", "FILE", "GOOD"],
        ["report", "FILE", "--format", "markdown"],
        ["report", "FILE", "--junit", "MADE"],
        ["report", "FILE", "--format", "csv"],
        ["explain", "FILE"],
        ["diff", "GOOD", "FILE", "--anyway"],
        ["diff", "FILE", "GOOD", "--anyway", "--format", "markdown"],
        ["diff", "GOOD", "FILE", "--anyway", "--junit", "MADE"],
        ["diff", "GOOD", "FILE", "--anyway", "--format", "csv"],
    ],
    ids=lambda words: " ".join(words),
)
def test_no_line_of_a_command_is_one_of_a_file(xverify, folder, words):
    seen = 0
    for file in folder.iterdir():
        names = {"FILE": file, "GOOD": folder.parent / "good.json", "MADE": folder.parent / "made.xml"}
        done = xverify(*(names.get(word, word) for word in words))
        assert not done.err or done.err.endswith(f"wrote {names['MADE']}\n")
        assert done.code in (0, 1, 4)
        text = names["MADE"].read_text() if "MADE" in words else done.out
        check_lines(text)
        check_lines(done.out + done.err)
        seen += "evil" in text
        if "markdown" in words:
            html = cmarkgfm.github_flavored_markdown_to_html(done.out, Options.CMARK_OPT_UNSAFE)
            assert "<a " not in html
    assert seen > 5


def test_a_page_has_no_link_to_elsewhere(xverify, folder):
    page = folder.parent / "page.html"
    done = xverify("report", *folder.iterdir(), "--html", page)
    check_lines(done.out + done.err)
    assert done.code == 1, done.err
    text = page.read_text()
    assert "http://evil.example" in text
    assert not [target for target in re.findall(r'(?:href|src)="([^"]*)"', text) if not target.startswith("#")]


def test_no_line_of_a_history_is_one_of_a_file(xverify, folder):
    pytest.importorskip("duckdb")
    for form in ([], ["--format", "markdown"], ["--format", "csv"]):
        done = xverify("history", "--results", folder, "--all", "--quiet", *form)
        assert done.code in (0, 1, 4), done.err
        check_lines(done.out)
        check_lines(done.err)


def test_a_long_line_is_not_broken_before_a_text_that_reads_as_a_verdict(xverify, tmp_path):
    layers = [
        LayerError(
            f"fc{length}",
            "Linear",
            1,
            9e9,
            9e9,
            0.0,
            Verdict.DIFFERENT,
            explanation=f"{'y ' * (length // 2)}{length}{LINES}",
        )
        for length in range(120, 190)
    ]
    error = replace(FORWARD.error, layers=replace(FORWARD.layers, layers=tuple(layers)))
    path = tmp_path / "long.json"
    path.write_text(json.dumps(replace(RESULT, rows=(replace(FORWARD, error=error),)).to_dict()))
    done = xverify("explain", path)
    assert done.out.count("PASS everything") == len(layers)
    assert not [line for line in done.out.splitlines() if OBEYED.match(line)]


# -- texts that are a verdict as a whole -----------------------------------------------------------------------------


def begins(done, text):
    """The lines of an output that begin with a text; a name that is a verdict alone is one of them, where more follows it."""
    return [line for line in done.out.splitlines() if line.startswith(text.strip() + " ") or line.strip() == text]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["PASS everything", "FAIL: nothing"])
def test_no_line_of_a_report_begins_with_a_text_that_reads_as_a_verdict(xverify, tmp_path, text):
    done = xverify("report", "--details", *write_samples(tmp_path, text).iterdir())
    assert (done.code, done.err) == (1, "")
    assert done.out.count(text) > 50
    assert not begins(done, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["report FILE --details", "explain FILE", "diff GOOD FILE --anyway", "diff FILE GOOD"]
)
def test_no_line_begins_with_a_text_that_reads_as_a_verdict(xverify, tmp_path, words):
    seen = 0
    for file in write_samples(tmp_path, "PASS everything").iterdir():
        names = {"FILE": file, "GOOD": tmp_path / "good.json"}
        done = xverify(*(names.get(word, word) for word in words.split()))
        assert not begins(done, "PASS everything"), done.out
        seen += "PASS everything" in done.out
    assert seen > 5


def test_a_table_that_programs_read_has_no_quotes(xverify, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(replace(RESULT, model="PASS everything").to_dict()))
    assert not begins(xverify("report", path), "PASS everything")
    lines = xverify("report", path, "--format", "csv").out.splitlines()
    assert len(lines) == 1 + len(RESULT.rows)
    assert {line.partition(",")[0] for line in lines[1:]} == {"PASS everything"}


@pytest.mark.usefixtures("in_one_process")
def test_a_model_and_a_weight_whose_names_read_as_a_verdict_are_quoted(xverify, tmp_path):
    folder = write_folder(tmp_path / "PASS everything")
    for command in (
        ["run", folder, "--subjects", "numpy", "--no-timing"],
        ["sweep", folder, "--subjects", "numpy", "--no-timing"],
    ):
        done = xverify(*command)
        assert (done.code, "PASS everything" in done.out) == (4, True), done.err  # the reference alone
        assert not [line for line in (done.out + done.err).splitlines() if line.startswith("PASS everything")]
    for name, value in (("a", 0), ("b", 1)):
        np.savez(tmp_path / f"{name}.npz", **{"PASS everything": np.full((2, 2), value, np.float32)})
    done = xverify("weights", "diff", tmp_path / "a.npz", tmp_path / "b.npz")
    assert (done.code, done.out.splitlines()[0][:17]) == (1, "'PASS everything:")


# -- while a command works --------------------------------------------------------------------------------------------


def test_the_name_of_a_model_is_no_line(xverify, tmp_path, in_one_process):
    done = xverify("run", write_folder(tmp_path / LINES), "--subjects", "numpy", "--no-timing")
    assert "PASS everything" in done.out + done.err
    check_lines(done.out)
    check_lines(done.err)


@pytest.mark.parametrize("command", ["report", "explain", "sweep", "check", "history --results", "weights digest"])
def test_the_name_of_a_file_is_no_line_of_an_error(xverify, tmp_path, command):
    name = tmp_path / f"{LINES}.toml"
    done = xverify(*command.split(), f"{name}")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "x PASS everything" in done.err
    check_lines(done.err)


def test_the_name_of_a_weight_is_no_line(xverify, tmp_path):
    for name, value in (("a", 0), ("b", 1)):
        np.savez(tmp_path / f"{name}.npz", **{f"{LINES} [bold]y[/]": np.full((2, 2), value, np.float32)})
    done = xverify("weights", "diff", tmp_path / "a.npz", tmp_path / "b.npz")
    assert done.code == 1
    assert "x PASS everything" in done.out
    check_lines(done.out)


# -- the functions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\r\n  b\u2028c\vd", "a b c d"),
        ("::error::x", "\\x3a:error::x"),
        ("  ::error::x", "  \\x3a:error::x"),
        ("at::Tensor", "at::Tensor"),
        ("##[error]x ##vso[task]", "\\x23#[error]x \\x23#vso[task]"),
        ("#1 [0::2]", "#1 [0::2]"),
        ("\x1b[31m", "\\x1b[31m"),
    ],
)
def test_a_text_from_elsewhere_is_one_line(text, line):
    assert shown(text) == line
    assert shown(line) == line


def test_an_error_has_the_lines_that_it_was_given():
    assert (
        str(XverifyError("two cells\nPASS", "a: no", "b\n::error::x")) == "two cells PASS\n  a: no\n  b \\x3a:error::x"
    )


@pytest.mark.parametrize(
    "link",
    ["http://a.example", "HTTPS://a.example", "www.a.example", "a@b.example", "mailto:a@b.example", "ftp://a.example"],
)
def test_an_address_is_no_link_in_markdown(link):
    html = cmarkgfm.github_flavored_markdown_to_html(markdown.literal(link), Options.CMARK_OPT_UNSAFE)
    assert "<a " not in html
    assert re.sub("<.*?>", "", html).strip() == link


@pytest.mark.parametrize("text", ["@someone", "#12", "GH-12", "a/b#12"])
def test_a_name_mentions_nobody_and_no_issue(text):
    assert text not in markdown.literal(text)
