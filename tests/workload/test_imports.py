"""What the import of a model's files needs from Python."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from xverify.workload.imports import parsed

CODE = b"\n".join(
    b"def f%d(a, b=(1, [2, {3: 4}])):\n    return a + (b * (a - (b, [c for c in a])))" % n for n in range(200)
)


def test_threads_may_read_code_at_the_same_time():
    """CPython 3.11 raised a SystemError where one thread went on while the garbage of another's syntax tree was collected."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()

    def let_others_go_on(phase, info):
        sum(range(3000))

    try:
        sys.setswitchinterval(1e-6)
        gc.callbacks.append(let_others_go_on)
        gc.set_threshold(50)
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(parsed, [CODE] * 12))
    finally:
        gc.callbacks.remove(let_others_go_on)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    assert {len(tree.body) for tree in trees} == {200}
