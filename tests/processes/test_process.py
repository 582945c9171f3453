"""A worker as the parent sees it: a wrong reply ends this worker, and the error gives the reason."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import write_folder

from xverify.errors import Crashed, Failed, TimedOut
from xverify.framework import discovery as frameworks
from xverify.messages import Build, Built, DeviceMemory, DeviceMemoryRead, Load, Prepare, codec
from xverify.processes import lines
from xverify.processes import worker as process
from xverify.processes.worker import Worker
from xverify.weights import npz
from xverify.workload import probe
from xverify.workload.spec import load_folder


@pytest.fixture
def start(tmp_path, faulty_frameworks):
    workers = []

    def start(name, timeout=60.0, **more):
        folder = tmp_path / name
        folder.mkdir()
        workers.append(Worker(frameworks.load(name), sys.executable, folder, 1, "cpu", timeout, **more))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def build(worker, tmp_path):
    folder = write_folder(tmp_path / "port", (worker.adapter.name,))
    return worker.ask(Build(str(folder), options={}, onnx=None, names={}, inputs={"x": None}, outputs={"y": None}))


def dead(worker):
    return worker.process.wait(10) != 0


def test_every_reply_is_of_the_type_that_its_request_names(start, tmp_path):
    worker = start("talkative")
    built = build(worker, tmp_path)
    assert isinstance(built, Built)
    assert built.shapes["fc1.weight"] == (6, 8)
    assert worker.ask(DeviceMemory()) == DeviceMemoryRead(1.0)


SAYS = {
    "wrong type": "while answering the request DeviceMemory, which is not the protocol: DeviceMemoryRead: unknown 'seconds'",
    "wrong field": "DeviceMemoryRead.peak_mib: expected float or null, got '99'",
    "earlier number": "sent a reply of number 2 to request number 3, while answering the request DeviceMemory",
    "later number": "sent a reply of number 4 to request number 3, while answering the request DeviceMemory",
    "no number": "which is not the protocol: it has no number",
    "earlier protocol": "which is not the protocol: it has no number",
    "hello": "which is not the protocol: it has no number",
    "a number": "which is not the protocol: it is not a JSON object",
    "half a line": "which is not the protocol: it is not JSON",
    "text": "answered b'loading...' while answering the request DeviceMemory, which is not the protocol",
}


@pytest.mark.parametrize(("fault", "says"), SAYS.items(), ids=SAYS)
def test_a_wrong_reply_ends_this_worker_and_no_other(start, tmp_path, monkeypatch, fault, says):
    other = start("numpy")
    monkeypatch.setenv("TALKATIVE", fault)
    worker = start("talkative")
    build(worker, tmp_path)
    with pytest.raises(Crashed) as crash:
        worker.ask(DeviceMemory())
    assert says in str(crash.value)
    assert dead(worker)
    assert isinstance(build(other, tmp_path / "other"), Built)


def test_threads_that_ask_one_worker_wait_for_each_other(start, tmp_path):
    worker = start("talkative")
    build(worker, tmp_path)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(worker.ask, DeviceMemory()) for _ in range(200)]
    assert all(answer.result() == DeviceMemoryRead(1.0) for answer in answers)


def test_an_extra_reply_ends_the_worker_at_the_next_request(start, tmp_path, monkeypatch):
    monkeypatch.setenv("TALKATIVE", "extra")
    worker = start("talkative")
    build(worker, tmp_path)
    # The extra line is a correct reply to this request, so only the second reply shows that one is too many.
    assert worker.ask(DeviceMemory()) == DeviceMemoryRead(99.0)
    with pytest.raises(Crashed, match=r"without being asked|a reply of number 3 to request number 4"):
        worker.ask(DeviceMemory())
    assert dead(worker)


def test_a_line_that_was_sent_without_a_request_ends_the_worker(start, tmp_path):
    worker = start("numpy")
    worker._lines.put(codec.encode_reply(2, DeviceMemoryRead(99.0)))
    with pytest.raises(
        Crashed, match=r"sent b'.*peak_mib.*' before answering the request DeviceMemory, without being asked"
    ):
        worker.ask(DeviceMemory())
    assert dead(worker)


def test_a_request_to_a_dead_worker_fails_at_once(start, monkeypatch, tmp_path):
    worker = start("numpy")
    worker.kill()
    for _ in range(3):
        with pytest.raises(Crashed, match="killed by SIGKILL while answering the request DeviceMemory"):
            worker.ask(DeviceMemory())


def test_a_refusal_is_raised_and_the_worker_continues(start, tmp_path):
    worker = start("numpy")
    build(worker, tmp_path)
    with pytest.raises(Failed, match="No such file"):
        worker.ask(Load(str(tmp_path / "missing.npz")))
    assert isinstance(build(worker, tmp_path), Built)


def test_a_request_that_json_cannot_represent_is_not_sent(start, tmp_path):
    worker = start("numpy")
    with pytest.raises(codec.MessageError, match="Load cannot be written as JSON"):
        worker.ask(Load(tmp_path))
    assert isinstance(build(worker, tmp_path), Built)


def test_a_worker_that_hangs_is_ended_after_its_timeout(start, tmp_path):
    beats = []
    worker = start("hangs", timeout=2.5, beat=lambda seconds, line: beats.append(seconds))
    build(worker, tmp_path)
    inputs = tmp_path / "inputs.npz"
    npz.save_file(probe.inputs(load_folder(tmp_path / "port").spec, 4, 0, 1), inputs)
    with pytest.raises(TimedOut, match=r"making its first step took over 2.5 s; see --timeout"):
        worker.ask(Prepare(str(inputs), "eager"))
    assert dead(worker)
    assert len(beats) >= 2
    # A later request tells why the worker was ended, and not that somebody killed it.
    with pytest.raises(TimedOut, match=r"making its first step took over 2.5 s; see --timeout"):
        worker.ask(Prepare(str(inputs), "eager"))


@pytest.mark.parametrize("version", [1, codec.VERSION + 1])
def test_a_worker_of_another_protocol_is_refused(start, monkeypatch, version):
    monkeypatch.setattr(process.codec, "VERSION", version)
    with pytest.raises(Crashed, match=rf"has an xverify of protocol 3, this one speaks {version}"):
        start("numpy")


def test_a_with_statement_starts_a_worker_and_ends_it(tmp_path):
    with Worker(frameworks.load("numpy"), sys.executable, tmp_path, 1, "cpu", 60.0) as worker:
        assert worker.rss_mib() > 1
        assert worker.import_rss_mib > 1
    assert worker.process.poll() is not None


def test_a_process_that_is_interrupted_before_its_lines_are_read_is_ended(tmp_path, monkeypatch):
    def interrupt(pid):
        raise KeyboardInterrupt

    monkeypatch.setattr("xverify.processes.worker.memory.end_first", interrupt)
    worker = Worker(frameworks.load("numpy"), sys.executable, tmp_path, 1, "cpu", 30.0)
    with pytest.raises(KeyboardInterrupt):
        worker.start()
    worker.close()
    assert worker.process.poll() is not None


@pytest.mark.parametrize("at", [1, 2])
def test_a_system_without_threads_ends_the_worker_with_one_line(at, start, monkeypatch):
    started, run = [], threading.Thread.start

    def refuse(thread):
        started.append(thread)
        if len(started) == at:
            raise RuntimeError("can't start new thread")
        run(thread)

    monkeypatch.setattr(lines.threading.Thread, "start", refuse)
    with pytest.raises(Crashed, match="its answers cannot be read: can't start new thread; end other processes"):
        start("talkative")
    assert len(started) == at
