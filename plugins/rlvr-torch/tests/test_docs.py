"""The example in docs/torch.md runs, and its options are the real ones."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

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


@pytest.mark.parametrize("field", attrs.fields(TorchConfig), ids=lambda field: field.name)
def test_every_option_is_on_the_page(field):
    """Key and default, as they are in the code."""
    rows = [row for row in PAGE.read_text().splitlines() if f"`torch.{field.name}`" in row]
    assert any(row.startswith("|") and str(field.default) in row for row in rows)
