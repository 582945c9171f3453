"""Questions in SQL: they read the index, and nothing else."""

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest
from helpers.historyresults import keep, result

from xverify.commands._main import main
from xverify.history import changes, page
from xverify.history.index import NAME
from xverify.history.tables import TABLES
from xverify.timing.statistics import SAME

pytest.importorskip("duckdb")


@pytest.fixture
def folder(tmp_path):
    return keep(tmp_path / "results", result(1), result(2, verdict="DIFFERENT"))


def ask(folder, query, capsys, *options):
    code = main(["history", "--results", str(folder), "--sql", query, *map(str, options)])
    done = capsys.readouterr()
    assert "Traceback" not in done.err
    return code, done.out, done.err


def rows(folder, query, capsys):
    code, out, err = ask(folder, query, capsys, "--format", "json")
    assert (code, err) == (0, "")
    return json.loads(out)["rows"]


def test_a_question_is_answered_as_a_table_and_in_every_format(folder, tmp_path, capsys):
    query = "SELECT path, verdict, created FROM results JOIN files USING (file) ORDER BY path"
    code, out, _ = ask(folder, query, capsys)
    assert code == 0
    assert [line.split() for line in out.splitlines() if line[:1].isalpha()] == [
        ["path", "verdict", "created"], ["r1.json", "PASS", "2026-11-01T10:00:00"], ["r2.json", "PASS", "2026-11-02T10:00:00"],
    ]  # fmt: skip
    assert out.endswith("2 rows\n")
    assert rows(folder, query, capsys)[0] == ["r1.json", "PASS", "2026-11-01T10:00:00"]
    files = ("--csv", tmp_path / "a.csv", "--markdown", tmp_path / "a.md")
    assert ask(folder, query, capsys, *files)[0] == 0
    assert [row["path"] for row in csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text()))] == [
        "r1.json",
        "r2.json",
    ]
    assert (tmp_path / "a.md").read_text().startswith("| path | verdict | created |\n")


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_the_columns_that_are_documented(table, folder, capsys):
    code, out, _ = ask(folder, f"SELECT * FROM {table}", capsys, "--format", "json")
    assert code == 0
    assert json.loads(out)["columns"] == list(TABLES[table])


def test_the_tables_hold_what_the_history_shows(folder, capsys):
    query = 'SELECT subject, measure, effect, "before", "after", newest FROM changes JOIN series USING (series)'
    assert rows(folder, query, capsys) == [["jittor", "verdict", "worse", "EQUAL", "DIFFERENT", True]]
    query = "SELECT ratio, low, high, compared, peak_rss_mib FROM measurements WHERE ratio IS NOT NULL ORDER BY created LIMIT 1"
    assert rows(folder, query, capsys) == [[1.1, 1.08, 1.12, True, 270.0]]
    query = "SELECT DISTINCT value FROM conditions WHERE name = 'jittor'"
    assert rows(folder, query, capsys) == [["1.3.10"]]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_secrets() UNION SELECT * FROM read_blob('{file}')",
        "COPY files TO '{file}'",
        "ATTACH '{file}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPORT DATABASE '{file}'",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "DELETE FROM files",
        "DROP TABLE files",
        "CREATE TABLE mine (a INT)",
        "UPDATE files SET path = ''",
        "INSERT INTO about VALUES ('version', '0')",
        "CHECKPOINT",
        "SELECT 1; DELETE FROM files",
        "",
        "/* nothing */",
        "SELCT 1",
        "SELECT nothing FROM files",
        "SELECT * FROM nothing",
        "SELECT \udcff",
        "SELECT '\x1b[31m' FROM nothing",
        "SELECT 1/0 FROM range(10) WHERE error('no')",
    ],
)
def test_anything_but_one_select_over_the_index_is_one_line(query, folder, tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("secret words")
    ask(folder, "SELECT 1", capsys)
    before = (folder / NAME).read_bytes()
    code, out, err = ask(folder, query.format(file=secret), capsys)
    assert (code, out) == (2, "")
    assert err.startswith(("xverify history: --sql", "xverify history: the argument 'SELECT"))
    assert len(err.splitlines()) == 1
    assert "\x1b" not in err
    assert "secret words" not in err
    assert secret.read_text() == "secret words"
    assert (folder / NAME).read_bytes() == before


def test_variables_of_the_program_are_no_tables(folder, capsys):
    for name in ("rows", "statements", "connection", "found"):
        assert ask(folder, f"SELECT * FROM {name}", capsys)[0] == 2


def test_values_of_every_kind_are_shown(folder, capsys):
    query = (
        "SELECT NULL, true, 1::HUGEINT << 100, 1.5::DECIMAL(9, 2), 'nan'::DOUBLE, 'inf'::DOUBLE, DATE '2026-01-01', [1, NULL], "
        "{'a': 'b'}, '\\x00'::BLOB, uuid() IS NULL, INTERVAL 1 DAY, TIME '10:00', MAP {'k': 1}, '[red]a[/red]', '=1+1'"
    )
    [values] = rows(folder, query, capsys)
    assert values[:7] == [None, True, 2**100, "1.50", "nan", "inf", "2026-01-01"]
    for options in ((), ("--format", "csv"), ("--format", "markdown")):
        code, out, err = ask(folder, query, capsys, *options)
        assert (code, err) == (0, "")
        assert "\x00" not in out
    assert "'=1+1" in ask(folder, query, capsys, "--format", "csv")[1]


def test_a_long_answer_is_cut_in_a_table_and_whole_in_csv(folder, capsys):
    query = "SELECT * FROM range(1500)"
    out = ask(folder, query, capsys)[1]
    assert "1,500 rows, of which 1,000 are printed: --format csv prints all" in out
    assert len(ask(folder, query, capsys, "--format", "csv")[1].splitlines()) == 1501
    code, _, err = ask(folder, "SELECT * FROM range(100_000_000)", capsys)
    assert code == 2
    assert "the answer has more than 1,000,000 rows: add a LIMIT" in err


@pytest.mark.parametrize(
    "options", [("mlp",), ("--since", "2026-01-01"), ("--all",), ("--subjects", "x"), ("--html", "p.html")]
)
def test_a_question_in_sql_takes_no_other_question(options, folder, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, _, err = ask(folder, "SELECT 1", capsys, *options)
    assert code == 2
    assert "--sql is the whole question: leave" in err


def test_a_folder_without_results_has_empty_tables(tmp_path, capsys):
    assert rows(tmp_path, "SELECT count(*) FROM results", capsys) == [[0]]


PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text()


@pytest.mark.parametrize("table", TABLES)
def test_the_page_of_documentation_has_every_column(table):
    [line] = re.findall(rf"^\| `{table}` \| .*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) >= {table, *TABLES[table]}


def test_the_page_of_documentation_has_the_limits():
    table = PAGE[PAGE.index("## What a change is") : PAGE.index("## What to ask")]
    for limit in (
        f"more than {math.expm1(SAME):.0%} away",
        f"{changes.MEMORY_FACTOR - 1:.0%} and {changes.MEMORY_MIB:g} MiB away",
        f"one of them is above {changes.RHO_LEAST:g} ",
    ):
        assert limit in table
    assert changes.RHO_FACTOR == 2
    assert f"the first {page.MOST_DRAWN} series" in PAGE
