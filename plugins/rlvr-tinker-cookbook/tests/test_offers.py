"""What the plugin says where tinker-cookbook is not installed."""

from __future__ import annotations

import sys

import pytest

from rlvr import BuildContext, PluginError, pip_install
from rlvr_tinker_cookbook.config import CookbookConfig
from rlvr_tinker_cookbook.offers import EXTRA, cookbook_task, installed


@pytest.fixture
def _no_cookbook(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "tinker_cookbook"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "rlvr_tinker_cookbook.task", raising=False)
    monkeypatch.setitem(sys.modules, "tinker_cookbook", None)


@pytest.mark.usefixtures("_no_cookbook")
def test_task_says_what_to_install() -> None:
    """Exit 3 with the command that brings the cookbook."""
    with pytest.raises(PluginError) as caught:
        cookbook_task(CookbookConfig(), BuildContext())
    assert pip_install(EXTRA) in str(caught.value)
    assert caught.value.exit_code == 3


def test_check_says_whether_it_is_there() -> None:
    """`rlvr doctor` names the cookbook's version, or what brings it."""
    result = installed()
    assert result.ok == ("tinker-cookbook" in result.found)
    assert result.ok or result.fix == pip_install(EXTRA)
