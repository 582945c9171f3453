import io

import pytest
from rich.console import Console

from xverify.report.tables import Column, FirstThatFits, markdown, narrower, table

COLUMNS = [
    Column("name", lambda row: row, left=True),
    Column("a very long head", lambda row: "1", short="short"),
    Column("dispensable", lambda row: "2"),
]


def heads(width):
    console = Console(file=io.StringIO(), width=width)
    console.print(FirstThatFits(table(each, ["row"], "") for each in narrower(COLUMNS, ["dispensable"])))
    return console.file.getvalue().splitlines()[0].strip()


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "name  a very long head  dispensable"),
        (34, "name  short  dispensable"),
        (20, "name  short"),
    ],
)
def test_heads_are_shortened_before_columns_are_left_out(width, shown):
    assert heads(width) == shown


def test_when_no_table_fits_the_narrowest_is_printed():
    assert len(heads(8).split()) == 2


def test_leaving_out_an_unknown_column_changes_nothing():
    assert [len(each) for each in narrower(COLUMNS, ["absent", "dispensable"])] == [3, 3, 3, 3, 2]


def test_markdown_has_its_rule_and_escapes_bars():
    assert markdown(["a", "b"], [["x", "|Δ|"]]) == ["| a | b |", "|---|---:|", "| x | \\|Δ\\| |"]
    assert markdown(["a", "b"], [], ":-:")[1] == "|---|:-:|"
