"""Sandboxes: where harnesses and answers run."""

from __future__ import annotations

from rlvr_cvdp.sandbox.base import Sandbox, SandboxLease, in_thread
from rlvr_cvdp.sandbox.choose import open_sandbox
from rlvr_cvdp.sandbox.records import Finished, Limits

__all__ = ["Finished", "Limits", "Sandbox", "SandboxLease", "in_thread", "open_sandbox"]
