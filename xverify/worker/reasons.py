"""What an exception says, in one line: its cause, and the line of the user's code where it was raised.

Frameworks wrap errors. Keras writes "Exception encountered when calling Net.call()." first, TensorFlow "in user code:" and the
calls, TorchScript a traceback, and Jittor the operators that it fused; the cause comes after that.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from .frames import chain, remark

LONGEST = 600  # characters of a cause that a reason quotes

# Colours, and the names that TensorFlow gives to its own functions.
NOISE = re.compile(r"\x1b\[[0-9;]*m|\{\{function_node [^}]*\}\} ?")
FRAME = re.compile(r'File "([^"]+)", line (\d+)')
TYPED = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception)): (.*)")
# Lines that say where an error was raised; what follows says why.
WRAPPERS = tuple(
    map(
        re.compile,
        (
            r"Exception encountered when calling .*\.$",
            r".*Error encountered:$",
            r"in user code:$",
            r"The following operation failed in the TorchScript interpreter\.$",
            r"Graph execution error:$",
            r"Detected at node .*",
            r"<stack traces unavailable>$",
        ),
    )
)
# Where Jittor says why an operator failed: "Reason: [f 0412 09:30:00.123456 7 reshape_op.cc:52] Check failed: ...".
JITTOR = re.compile(r"(?:Failed reason|Reason): *(?:\[[a-z] [^\]]*\] *)?(.*)")
PACKAGE = Path(__file__).parents[1]
LIBRARIES = (  # models and weights stand beside the package in a checkout
    *(PACKAGE, (PACKAGE / "models").resolve(), (PACKAGE / "weights").resolve()),
    Path(sysconfig.get_paths()["stdlib"]),
)
INSTALLED = ("site-packages", "dist-packages")
GENERATED = ("<", "__autograph_generated_file")  # beginnings of the names of files that a framework generates


def reason(error: BaseException, folder: Path | None = None) -> str:
    """The kind of an error, its cause, the place in the user's code, and what its frames tell, in one line.

    folder: the model folder.
    """
    text = described(error)
    cause = error.__cause__
    if cause is not None and described(cause).partition(": ")[2] not in NOISE.sub("", str(error)):
        text += f", caused by {described(cause)}"
    return "; ".join(filter(None, (text + place(error, folder), remark(error))))


def described(error: BaseException) -> str:
    """The kind of an error and its cause: ``ValueError: mat1 and mat2 shapes cannot be multiplied``."""
    kind, text = type(error).__name__, NOISE.sub("", _text(error))
    jittor = JITTOR.search(text)
    lines = [jittor[1].strip()] if jittor and jittor[1].strip() else _without_wrappers(text)
    if not lines:
        return kind
    match = TYPED.fullmatch(lines[0])
    if match:
        kind, lines[0] = match[1].rpartition(".")[2], match[2]
    cause = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
    return f"{kind}: {cause if len(cause) <= LONGEST else cause[:LONGEST] + ' ...'}"


def _text(error: BaseException) -> str:
    """The text of an error; that of a KeyError is otherwise written in quotes, with its line breaks as characters."""
    lines = isinstance(error, KeyError) and error.args and "\n" in str(error.args[0])
    return str(error.args[0] if lines else error)


def _without_wrappers(text: str) -> list[str]:
    """The lines of an error's text from its cause on, without empty lines."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    while len(lines) > 1:
        line, rest = lines[0].strip(), lines[1:]
        typed = TYPED.fullmatch(line)
        if FRAME.match(line):
            # The line of code below a frame is indented further than the frame.
            lines = rest[1:] if len(rest) > 1 and _indent(rest[0]) > _indent(lines[0]) else rest
        elif line.startswith("Traceback "):
            last = [index for index, each in enumerate(rest) if TYPED.fullmatch(each.strip())]
            lines = rest[last[-1] if last else len(rest) - 1 :]
        elif any(wrapper.match(typed[2] if typed else line) for wrapper in WRAPPERS):
            lines = rest
        else:
            break
    return [line.strip() for line in lines]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def place(error: BaseException, folder: Path | None = None) -> str:
    """The innermost line of the user's code where an error was raised, as " (file:line)"; "" when it was raised elsewhere.

    A line that the text of the error names comes first: code that a framework traces or compiles is not in the traceback.
    """
    for each in chain(error):
        told = [(found[1], int(found[2])) for found in FRAME.finditer(str(each))]
        raised = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(each.__traceback__)]
        if isinstance(each, SyntaxError) and each.filename:
            raised.append((each.filename, each.lineno or 0))
        for file, line in (*reversed(told), *reversed(raised)):
            if _is_users(Path(file), folder):
                return f" ({file}:{line})"
    return ""


def _is_users(file: Path, folder: Path | None) -> bool:
    """Whether code is the user's: in the model folder, or neither xverify's, nor an installed package's, nor Python's own."""
    if folder is not None and file.is_relative_to(folder):
        return True
    if str(file).startswith(GENERATED[0]) or file.name.startswith(GENERATED[1]):
        return False
    return not any(file.is_relative_to(library) for library in LIBRARIES) and not set(INSTALLED) & set(file.parts)
