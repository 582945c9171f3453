"""Tells what the code of a TorchScript file could do beside computing, without torch.

``torch.jit.load`` compiles the code, and calls the ``__setstate__`` in it. So the code is looked at before it is opened. It must be
what ``torch.jit.save`` writes: a subset of Python without comments, backslashes between texts, and calls of what an expression
returns. Then an operator can be reached in three ways alone, ``torch.NAME``, ``ops.SPACE.NAME``, and as a method of a value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from xverify.formats._allowed import allowed

OPERATORS = "torch-operators"
_TOKEN = re.compile(
    r"""(?P<space>[ \n]+)|(?P<text>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"""
    r"""|(?P<number>\d[\d.]*(?:e[+-]?\d+)?j?)|(?P<mark>[-+*/%<>=!&|^~.,:()\[\]{}])"""
)
# Operators of PyTorch that are no method of a tensor or list here, because they name a file or another process.
REACHING = frozenset(
    {"save", "from_file", "to_here", "owner", "owner_name", "is_owner", "local_value", "confirmed_by_owner"}
)
_KEYWORDS = "return if elif else while for in not and or is assert with raise del def class"
# What a name in front of a bracket may be: a form of the language, or a function of Python that returns a value.
_FUNCTIONS = (
    "annotate getattr hasattr isinstance unchecked_cast uninitialized fork print int float bool str complex len list "
    "tuple dict range enumerate zip min max sum abs round sorted ord chr hash"
)
_ROOTS = frozenset({"torch", "ops", "__torch__"})  # names from which operators, classes and functions are reached
_INNER = re.compile(r"__forked_function\d*")  # the name of a function within a function
# Methods of packed weights.
_OF_WEIGHTS = "unpack bias bit_rate stride padding output_padding dilation groups"
# Classes of PyTorch whose state is weights in a packed form.
_CLASSES = re.compile(
    r"(quantized\.(Linear|Conv2d|Conv3d|Embedding)PackedParamsBase|rnn\.CellParamsBase|sparse\.LinearPackedParamsBase"
    r"|xnnpack\.(Linear|Conv2d|TransposeConv2d)OpContext|mkldnn\.ConvOpContext)\b"
)
_CLASS = re.compile(rb"torch\.classes\.([\w.]*)")


def risk(codes: Sequence[str], pickles: Sequence[bytes]) -> str:
    """What a file could do, as a clause; "" for nothing. codes: its modules. pickles: its data and constants."""
    for content in pickles:
        for match in _CLASS.finditer(content.replace(b"\n", b".")):
            if not _CLASSES.match(match[1].decode()):
                return (
                    f"it holds an object of torch.classes.{match[1].decode()[:80]}, which may do more than hold weights"
                )
    try:
        files = [list(_tokens(code)) for code in codes]
        defined = {each for words in files for before, each in pairwise(words) if before == "def"}
        return next(filter(None, (_risk(words, defined) for words in files)), "")
    except (ValueError, SyntaxError) as error:
        return f"its code cannot be looked through: {error}"


def _tokens(code: str) -> Iterator[str]:
    place, before = 0, ""
    while place < len(code):
        match = _TOKEN.match(code, place)
        if match is None:
            raise ValueError(f"it has {code[place]!r} where PyTorch writes none")
        place = match.end()
        if match.lastgroup == "space":
            continue
        if match.lastgroup == "text" and before == "text":
            raise ValueError("it has two texts side by side, which PyTorch does not write")
        before = match.lastgroup or ""
        yield match[0]


def _risk(words: Sequence[str], defined: set[str]) -> str:
    """The same for one module. defined: the names of the functions and methods of the file."""
    at, begin = 0, 0  # begin: of the function
    while at < len(words):
        word, before = words[at], words[at - 1] if at else ""
        begin = (
            at
            if word == "class" or (word == "def" and not _INNER.fullmatch("".join(words[at + 1 : at + 2])))
            else begin
        )
        if word == "(" and (before in (")", "]", "}") or (before and before[0] in "\"'0123456789")):
            return "its code calls what an expression returns, which PyTorch does not write"
        is_inner = _INNER.fullmatch(word) is not None
        given = "".join(words[at + 1 : at + 3]) if word == "fork" and before != "." else "(__torch__"
        if (is_inner and before != "def" and words[at - 2 : at] != ["fork", "("]) or not (
            given == "(__torch__" or (given[0] == "(" and _INNER.fullmatch(given[1:]))
        ):
            return "its code lets another thread call something that is no function of the file"
        if word == "getattr" and _named(words[at + 1 :]) & REACHING:
            return (
                f"its code takes the attribute {min(_named(words[at + 1 :]))!r}, which may reach outside of the model"
            )
        end = at + 1
        if word[0].isalpha() or word[0] == "_":
            while words[end : end + 1] == ["."] and word in _ROOTS and before != ".":
                end += 2
            name, called = ".".join(words[at:end:2]), words[end : end + 1] == ["("]
            if before == ".":
                method = word in defined or f"aten::{word}" in allowed(OPERATORS) or word in _OF_WEIGHTS.split(" ")
                if called and (not method or word in REACHING):
                    return f"its code calls the method {word[:80]}, which may reach outside of the model"
            elif before not in ("def", "class") and not (
                _is_safe_name(word, name, called) or _is_own_function(word, words[begin : at + 1])
            ):
                return f"its code calls {name[:80]}, which may reach outside of the model"
        at = end
    return ""


def _named(words: Sequence[str]) -> set[str]:
    """The texts among the arguments of a call. words: those behind the name that is called."""
    found, depth = set[str](), 0
    for word in words:
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if depth <= 0:
            break
        if depth == 1 and word[0] in "\"'":
            found.add(ast.literal_eval(word))
    return found


def _is_safe_name(word: str, name: str, called: bool) -> bool:
    """Whether a name may stand where it is. word: its first part."""
    parts = name.split(".")
    if word == "torch":
        return len(parts) == 2 and f"aten::{parts[1]}" in allowed(OPERATORS)
    if word == "ops":
        return len(parts) == 3 and f"{parts[1]}::{parts[2]}" in allowed(OPERATORS)
    if word == "__torch__":
        return parts[1:3] != ["torch", "classes"] or _CLASSES.match(".".join(parts[3:])) is not None
    return not called or word in _FUNCTIONS.split(" ") or word in _KEYWORDS.split(" ")


def _is_own_function(name: str, words: Sequence[str]) -> bool:
    """Whether a local name stands for a function of the file. words: of the function, up to this use of the name."""
    uses = [at for at, word in enumerate(words) if word == name and words[at - 1] != "."]
    first, rest = uses[0], uses[1:-1]
    end = first + 3
    while words[end : end + 1] == ["."]:
        end += 2
    is_given = (
        name not in _ROOTS
        and words[first + 1 : first + 3] == ["=", "__torch__"]
        and words[end : end + 1] not in (["("], ["["])
    )
    return is_given and all(words[at + 1] == "(" for at in rest)


def unknown_operator(module: Any) -> str:
    """An operator of a module that was loaded, and was not called yet, which may reach outside of the model; "" for none."""
    import torch

    def of(block: Any) -> Iterator[str]:
        for node in block.nodes():
            yield str(node.kind())
            for inner in node.blocks():
                yield from of(inner)

    for part in module.modules():
        for name in part._c._method_names():
            graph = part._c._get_method(name).graph
            if part is module:  # its calls of functions and methods lead to all but those of interfaces
                graph = graph.copy()
                torch._C._jit_pass_inline(graph)
            found = set(of(graph)) - allowed(OPERATORS)
            if found:
                return min(found)
    return ""
