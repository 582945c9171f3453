"""Where two passes on one input first differ."""

import numpy as np

from xverify.framework.capture import LayerCall
from xverify.worker.soundness import ROW, Digests, Pass, change, first_difference

ONE = np.random.default_rng(0).standard_normal((16, 16))


def saved(folder, arrays):
    """A pass of a -> b -> output. arrays: input and output of a, input and output of b, output of the model."""
    folder.mkdir()
    for index, array in enumerate(arrays[:4]):
        np.save(folder / f"{index}.npy", array)
    calls = (LayerCall("a", 0, ("0.npy",), ("1.npy",)), LayerCall("b", 0, ("2.npy",), ("3.npy",)))
    return Pass(calls, {"y": arrays[4]}, folder)


def test_the_first_layer_or_glue_code_that_differs_is_named(tmp_path):
    arrays = [ONE + index for index in range(5)]
    first = saved(tmp_path / "first", arrays)
    assert first_difference(first, saved(tmp_path / "same", arrays)) == ("", 0.0)
    expected = (
        "the glue code before `a`",
        "layer `a`",
        "the glue code between `a` and `b`",
        "layer `b`",
        "the glue code after `b`",
    )
    for index, place in enumerate(expected):
        changed = [array * 1.5 if at >= index else array for at, array in enumerate(arrays)]
        found, share = first_difference(first, saved(tmp_path / f"{index}", changed))
        assert found == place
        assert round(share, 6) == 0.5
    shorter = Pass(first.records[:1], first.outputs, first.folder)
    assert first_difference(first, shorter)[0] == "the glue code after `a`"


def test_rounding_is_no_difference():
    single = ONE.astype(np.float32)
    assert change(single, np.nextafter(single, np.float32(9))) == 0.0
    assert change(single, single * np.float32(1.001)) > 0
    assert change(ONE, ONE * (1 + 1e-12)) == 0.0
    assert change(ONE, ONE * (1 + 1e-6)) > 0  # more than the unit roundoff of float32, 6e-8
    assert change(np.arange(4), np.arange(4)) == 0.0
    assert change(np.arange(4), np.array([0, 1, 2, 4])) == 0.25
    assert change(single, ONE) > 0


def test_digests_tell_arrays_apart_that_differ_in_one_bit_or_in_their_order(tmp_path):
    values = np.random.default_rng(0).standard_normal(3 * ROW // 8 + 5)
    width = ROW // 8

    def exchanged(one, other):
        order = np.arange(len(values))
        order[[one, other]] = other, one
        return values[order]

    changed = [values.copy() for _ in range(3)]
    for array, place in zip(changed, (0, width + 7, -1)):
        array.view(np.int64)[place] ^= 1
    others = [
        *changed,
        exchanged(3, 4),  # in one row
        exchanged(3, 3 + width),  # in one column
        exchanged(3, 4 + width),
        exchanged(0, -1),
        np.concatenate([values[width : 2 * width], values[:width], values[2 * width :]]),  # two whole rows
        values.reshape(1, -1),
        values.view(np.int64),
        -values,
    ]
    recorder = Digests(tmp_path, lambda value: value)
    found = recorder.begin("layer", [values, values.copy(), *others]).inputs
    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(others)


def test_arrays_of_any_form_have_a_digest(tmp_path):
    given = [
        np.array(1.5),
        np.empty((0, 3)),
        np.ones((3, 4), np.float32).T,
        np.array([True, False]),
        np.ones(3, np.float16),
    ]
    assert len(set(Digests(tmp_path, lambda value: value).begin("layer", given).inputs)) == len(given)
