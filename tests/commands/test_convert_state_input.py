"""Wrong input of `xverify convert-state` ends with exit code 2, and says what is wrong."""

import pytest
from helpers import resumed

torch = pytest.importorskip("torch")

TO = ("--to", "keras", "--out", "resumed.weights.h5")


@pytest.fixture
def refused(tmp_path, xverify, in_one_process):
    """Call the command in a folder with a checkpoint, which must refuse. Returns what it says."""
    folder, here = resumed.folder(tmp_path), tmp_path / "here"
    here.mkdir()
    resumed.checkpoint(here, lambda p: torch.optim.Adam(p, 1e-3), 2)

    def run(*words, content=None):
        if content is not None:
            torch.save(content, here / "checkpoint.pt")
        done = xverify("convert-state", folder, *words)
        assert done.code == 2, done.out + done.err
        assert not (here / "resumed.weights.h5").exists()
        return done.err

    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--from", "torhc=checkpoint.pt", *TO), "--from is 'torhc'; did you mean 'torch'?"),
        (("--from", "torch=none.pt", *TO), "--from none.pt: no such file"),
        (("--from", "torch", *TO), "name the file, e.g. --from torch=checkpoint"),
        (("--from", "jax=checkpoint.pt", *TO), "port has no jax.py"),
        (("--from", "torch=checkpoint.pt", "--to", "keras"), "give --out FILE to write a file, or --to FRAMEWORK=FILE"),
        (("--from", "torch=checkpoint.pt", "--to", "torch", "--out", "a.pt"), "both frameworks are torch"),
        (("--from", "torch=checkpoint.pt", *TO, "--set", "lr"), "--set lr: write NAME=NUMBER"),
        (("--from", "torch=checkpoint.pt", *TO, "--set", "lr=0.5"), "--set lr=0.5: checkpoint.pt says 0.001"),
        (("--from", "torch=checkpoint.pt", *TO, "--optimizer", "sgd"), "checkpoint.pt holds the state of adam"),
        (("--from", "torch=checkpoint.pt", "--to", "keras", "--out", "checkpoint.pt"), "is what this command reads"),
    ],
)
def test_a_wrong_command_line_is_refused(refused, words, says):
    assert says in refused(*words)


@pytest.mark.parametrize("content", [b"PK\x03\x04 and no archive", b"hello\n"])
def test_a_file_that_is_no_checkpoint_is_refused(refused, tmp_path, content):
    (tmp_path / "here" / "checkpoint.pt").write_bytes(content)
    says = refused("--from", "torch=checkpoint.pt", *TO)
    assert "checkpoint.pt: not a readable .pt file, or truncated" in says, says


def test_state_without_weights_needs_them(refused):
    linear = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((6, 3, 5, 5), 6, (6, 6), 6, (6, 6), 6, (4, 6), 4)]
    optimizer = torch.optim.Adam(linear)
    for each in linear:
        each.grad = torch.ones_like(each)
    optimizer.step()
    says = refused("--from", "torch=checkpoint.pt", *TO, content=optimizer.state_dict())
    assert "checkpoint.pt holds no weights: give them with --weights FILE" in says


def test_state_of_another_model_is_refused(refused):
    other = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(other.parameters())
    content = {"model": other.state_dict(), "optimizer": optimizer.state_dict()}
    says = refused("--from", "torch=checkpoint.pt", *TO, content=content)
    assert "its optimizer has 2 parameters, and the model 8: it is the state of another model" in says
