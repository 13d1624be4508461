"""The example in docs/torch.md runs, and its options are the real ones."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from rlvr_torch.config import TorchConfig
from rlvr_torch.models.gpt2_files import load_gpt2

PAGE = Path(__file__).parents[3] / "docs" / "torch.md"


def test_the_example_runs(tmp_path, monkeypatch):
    """It trains a tokenizer, samples, and saves a model that loads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert load_gpt2(tmp_path / "my-model").config.n_positions == 64


def test_the_options_of_the_page_have_their_defaults():
    """Key and default, as they are in the code."""
    fields = attrs.fields_dict(TorchConfig)
    rows = re.findall(r"^\| `torch\.(\w+)` \| `?(\w+)`? \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 5
    assert [(name, str(fields[name].default)) for name, _ in rows] == rows
