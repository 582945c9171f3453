"""The last line of a worker's log is read again and again while it works, so only new text may be read."""

import io
from pathlib import Path

from xverify.processes.log import MOST, Log


class Counted(io.FileIO):
    read_bytes = 0

    def read(self, *arguments):
        found = super().read(*arguments)
        Counted.read_bytes += len(found)
        return found


def counted(monkeypatch):
    """Count the bytes that are read of any file."""
    monkeypatch.setattr(Counted, "read_bytes", 0)
    monkeypatch.setattr(Path, "open", lambda path, mode="r", **more: Counted(path, mode.replace("b", "")))
    return lambda: Counted.read_bytes


def test_only_what_is_new_is_read(tmp_path, monkeypatch):
    path = tmp_path / "worker.log"
    path.write_bytes(b"compiling a kernel\n" * 200_000)
    log, size = Log(path), counted(monkeypatch)
    for _ in range(50):
        assert log.last_line() == "compiling a kernel"
    assert size() <= MOST, "the file has 3.8 MB"
    with open(path, "ab") as file:
        file.write(b"linking")
    before = size()
    assert log.last_line() == "linking"
    assert size() - before == len(b"linking")
    with open(path, "ab") as file:
        file.write(b" 3 of 4\r\n \n")
    assert log.last_line() == "linking 3 of 4", "a line that came in two parts"


def test_a_log_that_begins_again_and_one_that_is_missing(tmp_path):
    path = tmp_path / "worker.log"
    log = Log(path)
    assert log.last_line() == ""
    path.write_text("\x1b[31ma long line of the first process\x1b[0m\n")
    assert log.last_line() == "a long line of the first process"
    path.write_text("second\n")
    assert log.last_line() == "second"
    assert log.last_words() == "; its last line: second"
