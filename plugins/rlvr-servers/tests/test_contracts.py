"""The contract kit, run on what this distribution offers."""

from __future__ import annotations

from rlvr.testing import PluginContract


class TestPlugin(PluginContract):
    module = "rlvr_servers.plugin"
