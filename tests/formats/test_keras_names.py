"""The outputs of a Keras file whose tensors have no names have the same names each time it is loaded."""

import pytest


@pytest.mark.slow
def test_a_sequential_model_is_compared_with_itself(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((8,), batch_size=4), keras.layers.Dense(3, name="last")])
    model.save(tmp_path / "file.keras")
    done = xverify("check", tmp_path / "file.keras", "--against", tmp_path / "file.keras", "--details")
    assert done.code == 0, done.out + done.err
    assert "1 of 1 answers EQUAL" in done.out
