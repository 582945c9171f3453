"""The page on safety names tests that exist, and every file of tests beside this one."""

import ast
import re
from pathlib import Path

from xverify.framework import formats

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "safety.md").read_text()
TABLE, _, REST = PAGE.partition("The rest of this page")


def rows():
    """(a sentence, the tests that it names) for each row of the table."""
    for sentence, named in re.findall(r"^\| ([^`|-].*?\.) \| (.*) \|$", TABLE, re.MULTILINE):
        yield sentence, re.findall(r"`([\w/]+\.py)::(\w+)`", named)


def names_in(name):
    """The functions of a file of tests."""
    return {each.name for each in ast.parse((TESTS / name).read_text()).body if isinstance(each, ast.FunctionDef)}


def test_every_sentence_has_tests_that_exist():
    found = list(rows())
    assert len(found) == len(re.findall(r"^\| .*\|$", TABLE, re.MULTILINE)) - 1 > 10  # without the head
    for sentence, named in found:
        assert named, sentence
        assert not [test for file, test in named if test not in names_in(file)], sentence


def test_every_format_says_what_its_files_may_use():
    rows = re.findall(r"^\| (.*?) \| .* \|$", REST, re.MULTILINE)
    assert len(rows) > 5
    for name, form in formats.load_all().items():
        words = {name, form.title.split(" ")[0], "." + name}
        assert any(word in row for row in rows for word in words), name
    for kept in Path(formats.__file__).parents[1].joinpath("formats").glob("*.txt"):
        assert f"`{kept.name}`" in REST


def test_the_table_is_half_a_page():
    words = " ".join(sentence for sentence, _ in rows()).split()
    assert len(words) < 250


def test_every_file_of_tests_on_safety_is_named():
    beside = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert beside - set(re.findall(r"safety/(test_\w+\.py)", PAGE)) == set()
    for name in re.findall(r"`tests/([\w/]+\.py)`", PAGE):
        assert (TESTS / name).is_file()
