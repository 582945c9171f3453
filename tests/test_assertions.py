"""Every test asserts something outside of loops that may not run even once: in such a loop, nothing may be looked at."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MADE_OF = {"enumerate", "zip", "reversed", "sorted", "list", "tuple", "set", "product", "permutations", "combinations"}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def last_name(call: ast.Call) -> str:
    """The name of what is called, without the object or module before it."""
    return ast.unparse(call.func).rpartition(".")[2]


def is_filled(node: ast.expr, known: set[str]) -> bool:
    """Whether an iterable has something in it, as its text shows. known: the names of such ones."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(not isinstance(each, ast.Starred) or is_filled(each.value, known) for each in node.elts)
    if isinstance(node, ast.Dict):
        return any(key is not None or is_filled(value, known) for key, value in zip(node.keys, node.values))
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, COMPREHENSIONS):
        return all(not each.ifs and is_filled(each.iter, known) for each in node.generators)
    if isinstance(node, ast.Call):
        name = last_name(node)
        if isinstance(node.func, ast.Attribute) and name in ("items", "keys", "values", "split"):
            return is_filled(node.func.value, known)
        if name == "range":
            return all(isinstance(each, ast.Constant) and each.value for each in node.args)
        return name in MADE_OF and bool(node.args) and all(is_filled(each, known) for each in node.args)
    return False


def filled_names(nodes: list[ast.stmt], known: set[str]) -> set[str]:
    """The names that these statements give to iterables with something in them."""
    found = set(known)
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Assign) and is_filled(each.value, found):
                found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    return found


def says_nothing_when_empty(node: ast.Assert, known: set[str]) -> bool:
    """Whether this is `assert all(... for ... in ...)` over something that may be empty."""
    asked = node.test
    return (
        isinstance(asked, ast.Call)
        and last_name(asked) == "all"
        and bool(asked.args)
        and isinstance(asked.args[0], COMPREHENSIONS)
        and not is_filled(asked.args[0], known)
    )


def asserts(node: ast.AST, known: set[str], helpers: set[str], looped: bool = False) -> Iterator[bool]:
    """For each assertion below a node: whether it is made in any case. helpers: functions that assert something."""
    for each in ast.iter_child_nodes(node):
        within = (
            looped or isinstance(each, ast.While) or (isinstance(each, ast.For) and not is_filled(each.iter, known))
        )
        if isinstance(each, ast.Assert):
            yield not looped and not says_nothing_when_empty(each, known)
        elif isinstance(each, ast.Call):
            name = last_name(each)
            if name in helpers or name.startswith(("assert_", "check_", "raises", "warns", "fail")):
                yield not looped
        yield from asserts(each, known, helpers, within)


def unsure(source: str) -> list[str]:
    """The names of the tests in a file that assert, and each time only in a loop that may not run."""
    tree = ast.parse(source)
    known = filled_names([node for node in tree.body if isinstance(node, ast.Assign)], set())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    helpers: set[str] = set()
    for _ in range(2):  # one helper may call another
        helpers = {
            each.name
            for each in functions
            if not each.name.startswith("test") and any(asserts(each, filled_names(each.body, known), helpers))
        }
    found = []
    for each in functions:
        if each.name.startswith("test"):
            made = list(asserts(each, filled_names(each.body, known), helpers))
            found += [each.name] if made and not any(made) else []
    return found


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_every_test_asserts_outside_of_loops_that_may_not_run(path):
    assert unsure(path.read_text()) == []


LOOPS = [
    "for each in found():\n        assert each",
    "for each in found().values():\n        assert each",
    "for number in range(count):\n        assert number",
    "for each in ():\n        assert each",
    "for each in (*found(),):\n        assert each",
    "while found():\n        assert 1",
    "assert all(each for each in found())",
    "for each in found():\n        np.testing.assert_equal(each, 1)",
    "for each in found():\n        helper()",
    "for each in found():\n        for other in (1, 2):\n            assert each",
]
SURE = [
    "for each in (1, 2):\n        assert each",
    "for each in NAMES:\n        assert each",
    "for name, each in sorted(TABLE.items()):\n        assert each",
    "rows = [3]\n    for each in rows:\n        assert each",
    "for each in range(3):\n        assert each",
    "for each in found():\n        assert each\n    assert len(found()) == 3",
    "assert all(each for each in NAMES)",
    "helper()",
    "with pytest.raises(ValueError):\n        found()",
    "found()",
]
HEAD = 'NAMES, TABLE = None, None\nNAMES = ("a", "b")\nTABLE = {"a": 1}\n\n\ndef helper():\n    assert NAMES\n\n\n'


@pytest.mark.parametrize("body", LOOPS)
def test_a_test_that_may_look_at_nothing_is_named(body):
    assert unsure(f"{HEAD}def test_it():\n    {body}\n") == ["test_it"]


@pytest.mark.parametrize("body", SURE)
def test_a_test_that_looks_at_something_is_not_named(body):
    assert unsure(f"{HEAD}def test_it():\n    {body}\n") == []
