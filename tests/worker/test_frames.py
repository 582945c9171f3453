"""What the frames of an exception tell: the file that could not be downloaded, the table that is too short."""

import urllib.request

import pytest

from xverify.worker.frames import missing_file, remark, too_short
from xverify.worker.reasons import reason

NOWHERE = "http://127.0.0.1:9/llama.bin"  # the port of a service that discards everything, which no machine of ours has


def raised(function):
    with pytest.raises(Exception) as caught:  # noqa: PT011  of any class
        function()
    return caught.value


def test_file_of_a_hub_is_named_with_its_repository():
    hub = pytest.importorskip("huggingface_hub")
    error = raised(lambda: hub.hf_hub_download("nobody/none", "config.json", local_files_only=True))
    assert missing_file(error) == "config.json of nobody/none"
    assert "the model needs a download, config.json of nobody/none, which failed: get this file" in reason(error)


@pytest.mark.parametrize("request_of", [str, urllib.request.Request])
def test_address_of_a_file_is_named(request_of):
    def wrapped():
        try:
            urllib.request.urlopen(request_of(NOWHERE))
        except OSError:
            raise RuntimeError("no internet connection")  # noqa: B904  libraries wrap it in this way

    assert missing_file(raised(wrapped)) == NOWHERE


def test_weights_of_torch_are_named(tmp_path):
    torch = pytest.importorskip("torch")
    error = raised(lambda: torch.hub.load_state_dict_from_url(NOWHERE, str(tmp_path)))
    assert missing_file(error) == NOWHERE


@pytest.mark.parametrize(("index", "says"), [(12, "12"), (-1, "-1")])
def test_table_that_is_too_short_is_named_with_the_index(index, says):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Embedding(12, 4), torch.nn.Linear(4, 4))
    error = raised(lambda: model(torch.tensor([3, index])))
    assert too_short(error) == f"`0` has 12 rows, and is given the index {says}"
    assert reason(error).endswith(f"; `0` has 12 rows, and is given the index {says}")
    alone = raised(lambda: model[0](torch.tensor([index])))
    assert too_short(alone) == f"the Embedding has 12 rows, and is given the index {says}"


def test_other_errors_have_no_remark():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Embedding(12, 4), torch.nn.Linear(5, 4))
    assert remark(raised(lambda: model(torch.tensor([3])))) == ""
    assert remark(raised(lambda: 1 / 0)) == ""
