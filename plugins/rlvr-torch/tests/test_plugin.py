"""The plugin module is light, and what it offers can be built."""

from __future__ import annotations

import pytest
import torch
from rlvr_process import run_rlvr

from rlvr import ExitCode, PrerequisiteError
from rlvr.testing import PluginContract
from rlvr.testing.plugin import HEAVY
from rlvr_torch import plugin
from rlvr_torch.runtime.device import check_device, choose_device


class TestContract(PluginContract):
    """What every plugin module must hold; NumPy is too heavy for ours as well."""

    module = "rlvr_torch.plugin"
    heavy = (*HEAVY, "numpy", "tokenizers", "safetensors")


def test_transformers_waits_until_it_is_needed(tmp_path):
    """A run of a `gpt2:` model never pays for importing transformers or peft."""
    program = tmp_path / "opened.py"
    program.write_text(
        "import sys; from rlvr_torch.models.source import ModelSource; "
        "ModelSource.parse('gpt2:new').net(257); "
        "print({'transformers', 'peft'} & {*sys.modules})"
    )
    done = run_rlvr(program=program, cwd=tmp_path)
    assert done.stdout.strip() == "set()", done.stderr


def test_out_of_memory_is_explained():
    """A device out of memory gets advice and the backend's exit code."""
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")
    advice = plugin.rlvr_explain_error(error)
    assert advice is not None
    assert advice.exit_code == ExitCode.BACKEND
    assert "Tried to allocate 2 GiB" in advice.message
    assert "torch.microbatch_tokens" in advice.message


@pytest.mark.parametrize("error", [ValueError("out of memory"), MemoryError()])
def test_other_errors_are_left_to_others(error):
    """Only torch's own error is explained."""
    assert plugin.rlvr_explain_error(error) is None


def test_the_check_passes_here():
    """`rlvr doctor` multiplies two matrices on the device `auto` chooses."""
    result = check_device()
    assert result.ok
    assert torch.__version__ in result.found


def test_a_device_that_is_not_there_is_named(monkeypatch):
    """Asking for a GPU on a machine without one tells what there is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(PrerequisiteError, match=r"torch\.device=cuda.*\n.*finds: cpu"):
        choose_device("cuda")
