"""The worker's session, in this process and with a clock that advances by one second whenever it is read."""

import itertools
import sys
from typing import get_type_hints

import numpy as np
import psutil
import pytest
from conftest import MODEL, write_folder

from xverify.messages import (
    Block,
    Build,
    CallOn,
    Capture,
    DeviceMemory,
    Digest,
    GraphCount,
    Load,
    Pieces,
    PiecesTimed,
    Prepare,
    ReleaseMemory,
    Save,
    Start,
    Stop,
    Timed,
    Warm,
    codec,
)
from xverify.messages.codec import Refusal
from xverify.weights import digest, npz
from xverify.worker.handlers import Group
from xverify.worker.session import Session
from xverify.workload import probe
from xverify.workload.keys import case_key

LAYOUTS = {"inputs": {"x": None}, "outputs": {"y": None}}


class Ticking:
    def __init__(self):
        self.ticks = itertools.count()

    def __call__(self):
        return float(next(self.ticks))


@pytest.fixture
def session(tmp_path, faulty_frameworks):
    def start(framework="numpy", model=MODEL, names=None):
        folder = write_folder(tmp_path / "port", (framework,), model=model)
        session = Session(clock=Ticking())
        session.ask(Start(framework, threads=1, device="cpu"))
        session.ask(Build(str(folder), options={}, onnx=None, names=names or {}, **LAYOUTS))
        return session

    return start


def cases(tmp_path):
    arrays = {case_key(case, "x"): np.full((4, 8), case, np.float32) for case in range(2)}
    npz.save_file(arrays, tmp_path / "inputs.npz")
    return str(tmp_path / "inputs.npz")


def weights(session, tmp_path):
    arrays = probe.weights(session.state.shapes, seed=0)
    npz.save_file(arrays, tmp_path / "weights.npz")
    return arrays, str(tmp_path / "weights.npz")


def test_weights_are_read_back_out_of_the_model(session, tmp_path):
    live = session()
    arrays, path = weights(live, tmp_path)
    assert live.ask(Load(path)) == digest(arrays)
    live.state.model.weights["fc2.bias"][1] += 1e-3
    live.ask(Save(str(tmp_path / "saved.npz")))
    assert digest(npz.load_file(tmp_path / "saved.npz")) != digest(arrays)


def test_a_block_times_its_calls_and_nothing_else(session, tmp_path):
    live = session()
    live.ask(Load(weights(live, tmp_path)[1]))
    live.ask(Prepare(cases(tmp_path), "eager"))
    calls = 0

    def count(x):
        nonlocal calls
        calls += 1
        return x[:, :3]

    live.state.call = count
    # The clock is read at the start and at the end of a block, so a block takes one second for any number of calls.
    assert live.ask(Block(case=1, calls=25)) == Timed(1.0, None)
    assert calls == 25


def test_pieces_call_on_the_inputs_in_turn_and_read_the_clock_between_them(session, tmp_path):
    live = session()
    live.ask(Load(weights(live, tmp_path)[1]))
    live.ask(Prepare(cases(tmp_path), "eager"))
    given = []
    live.state.call = lambda x: given.append(x) or x[:, :3]
    assert live.ask(Pieces(calls=3, count=2)) == PiecesTimed((1.0, 1.0))
    known = live.state.cases
    assert len(known) > 1
    assert all(each is known[index % len(known)][0] for index, each in enumerate(given))
    assert len(given) == 6


def test_every_reply_is_of_the_type_that_its_request_names(session, tmp_path):
    live = session()
    inputs, kept = cases(tmp_path), str(tmp_path / "kept.npz")
    (tmp_path / "layers").mkdir()
    requests = [
        Start("numpy", threads=1, device="cpu"),
        Build(str(tmp_path / "port"), options={}, onnx=None, names={}, **LAYOUTS),
        Load(weights(live, tmp_path)[1]),
        Digest({}),
        Save(kept),
        Prepare(inputs, "eager"),
        Warm(calls=2, seconds=0.0),
        Block(case=0, calls=1),
        Block(case=0, calls=1, keep=kept),
        CallOn(inputs=inputs, path=str(tmp_path / "called.npz")),
        Pieces(calls=2, count=3),
        GraphCount(),
        Capture(inputs, 0, str(tmp_path / "layers"), None),
        DeviceMemory(),
        ReleaseMemory(),
    ]
    assert {type(each).__name__ for each in requests} == {
        name for name, kind in codec.REQUESTS.items() if kind.__module__ == Stop.__module__ and kind is not Stop
    }
    for each in requests:
        assert isinstance(live.ask(each), each.reply_type)


def test_the_outputs_that_are_kept_are_those_of_the_last_timed_call(session, tmp_path):
    live = session()
    live.ask(Load(weights(live, tmp_path)[1]))
    live.ask(Prepare(cases(tmp_path), "eager"))
    serial = itertools.count(1)
    live.state.call = lambda x: np.full((4, 3), next(serial), np.float32)
    reply = live.ask(Block(case=1, calls=7, keep=str(tmp_path / "out.npz")))
    assert reply == Timed(1.0, 0.0)
    kept = npz.load_file(tmp_path / "out.npz")
    assert list(kept) == ["1/y"]
    assert (kept["1/y"] == 7).all()


def test_memory_is_allocated_before_the_outputs_are_read(session, tmp_path, monkeypatch):
    live = session()
    live.ask(Prepare(cases(tmp_path), "eager"))
    done = []
    live.state.blocking = False
    live.state.framework.wait = lambda outputs: done.append("wait")
    live.state.framework.to_numpy = lambda tensor, layout: done.append("read") or np.zeros(3)
    monkeypatch.setattr("xverify.worker.timing.np.ones", lambda size, dtype: done.append((size, dtype)))
    live.ask(Block(case=0, calls=1, keep=str(tmp_path / "out.npz"), room=48))
    assert done == ["wait", "wait", "wait", (48, np.uint8), "read", "read"]


@pytest.mark.parametrize(("blocking", "waits"), [(False, [(), "output", "output", "output", ()]), (True, [()])])
def test_every_output_is_waited_for_unless_a_call_returns_computed_outputs(session, tmp_path, blocking, waits):
    live = session()
    live.ask(Prepare(cases(tmp_path), "eager"))
    waited = []
    live.state.blocking, live.state.framework.wait = blocking, waited.append
    live.state.call = lambda x: "output"
    live.ask(Block(case=0, calls=3))
    assert waited == waits


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (MODEL.replace("def build", "def make"), "defines no build"),
        (MODEL.replace("return Net()", "raise KeyError('depth')"), "KeyError: 'depth' ("),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_an_error_in_the_model_file_is_reported_with_its_place(tmp_path, broken, says):
    live, folder = Session(), write_folder(tmp_path / "port", model=broken)
    live.ask(Start("numpy", threads=1, device="cpu"))
    refused = live.answer(Build(str(folder), options={}, onnx=None, names={}, **LAYOUTS))
    assert isinstance(refused, Refusal)
    assert says in refused.reason
    assert refused.status == "failed"


def test_missing_and_extra_weights_name_both_sides(session, tmp_path):
    live = session()
    arrays, path = weights(live, tmp_path)
    arrays["fc1.weights"] = arrays.pop("fc1.weight")
    npz.save_file(arrays, tmp_path / "weights.npz")
    refused = live.answer(Load(path))
    assert "1 missing (fc1.weight)" in refused.reason
    assert "did you mean 'fc1.weight'" in refused.reason


def test_names_toml_renames_layers_and_parameters(session, tmp_path):
    theirs = MODEL.replace("fc1.", "dense.").replace('"fc2.bias"', '"fc2.shift"')
    live = session(model=theirs, names={"fc1": "dense", "fc2.bias": "fc2.shift"})
    assert set(live.state.shapes) == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    arrays, path = weights(live, tmp_path)
    assert live.ask(Load(path)) == digest(arrays)
    assert np.array_equal(live.state.model.weights["dense.weight"], arrays["fc1.weight"])


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has malloc_trim")
def test_releasing_memory_gives_it_back_to_the_system(session):
    session, process = session(), psutil.Process()
    blocks = [np.ones(1024) for _ in range(20_000)]
    last = blocks[-1]  # memory that is freed below this block stays with the process
    del blocks
    before = process.memory_info().rss
    session.ask(ReleaseMemory())
    assert before - process.memory_info().rss > 100 * 2**20
    assert last.all()


def test_an_unknown_request_is_refused(session):
    live = session()
    number, refused = codec.decode_reply(live.answer_line(b'{"id": 4, "ask": "Nonsense"}'), str)
    assert (number, refused) == (4, Refusal("failed", "a worker cannot be asked 'Nonsense'"))


def test_a_reply_that_json_cannot_represent_is_refused_and_the_worker_continues(session):
    live = session()
    live.state.framework.graph_count = lambda call: object()
    live.state.call = None
    number, refused = codec.decode_reply(live.answer_line(codec.encode_request(1, GraphCount())), int)
    assert number == 1
    assert "object cannot be written as JSON" in refused.reason
    live.state.framework.graph_count = lambda call: 3
    assert codec.decode_reply(live.answer_line(codec.encode_request(2, GraphCount())), int) == (2, 3)


def test_every_request_has_one_handler_that_returns_its_reply():
    known = Session().handlers
    assert set(known) == set(codec.REQUESTS.values()) - {Stop}
    for kind, handler in known.items():
        hints = get_type_hints(handler)
        assert (hints["request"], hints["return"]) == (kind, kind.reply_type)


def test_a_handler_that_returns_something_else_than_its_request_names_is_no_handler():
    class Counting(Group):
        def count(self, request: GraphCount) -> str:
            """Return what is no number."""

    with pytest.raises(TypeError, match=r"count returns <class 'str'>, and GraphCount is answered by int \| None"):
        Counting(None).handlers()
