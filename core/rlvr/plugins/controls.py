"""The environment variables that choose the plugins to load, and trace them."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

BUILTIN = "builtin"
"""The core's own plugin. It cannot be disabled."""

CONTROL_VARIABLES: Mapping[str, str] = {
    "RLVR_PLUGINS": "Load only these plugins (comma-separated); empty: none but the built-in one",
    "RLVR_DISABLE_PLUGINS": "Do not load these plugins (comma-separated)",
    "RLVR_STRICT_PLUGINS": "1: stop at the first plugin that does not load, with its traceback",
    "RLVR_TRACE_PLUGINS": "1: print each hook call on standard error",
    "RLVR_DEBUG": "1: show tracebacks of a person's mistakes too (as --debug)",
    "RLVR_DATA": "Folder of the data sets that tests read",
    "RLVR_CACHE_DIR": "Folder of the verdict store and other caches",
    "RLVR_REQUIRE_TOOLS": "1: a test that misses a tool fails rather than skips",
}
"""Every `RLVR_*` variable that is not an option, with what it does."""


@frozen(kw_only=True)
class Controls:
    """Values of the four `RLVR_*PLUGINS` variables."""

    only: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    is_strict: bool = False
    is_traced: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Controls:
        """Read the variables; one that is absent changes nothing."""
        only = env.get("RLVR_PLUGINS")
        return cls(
            only=None if only is None else _names(only),
            disabled=_names(env.get("RLVR_DISABLE_PLUGINS", "")),
            is_strict=is_on(env, "RLVR_STRICT_PLUGINS"),
            is_traced=is_on(env, "RLVR_TRACE_PLUGINS"),
        )

    def why_disabled(self, name: str) -> str:
        """Why the plugin may not load; "": it may."""
        if name == BUILTIN:
            return ""
        if name in self.disabled:
            return "disabled by RLVR_DISABLE_PLUGINS"
        if self.only is not None and name not in self.only:
            return "not in RLVR_PLUGINS"
        return ""

    @property
    def named(self) -> Mapping[str, str]:
        """Each plugin that a variable names, with that variable."""
        by_disable = dict.fromkeys(self.disabled, "RLVR_DISABLE_PLUGINS")
        return by_disable | dict.fromkeys(self.only or (), "RLVR_PLUGINS")


def is_on(env: Mapping[str, str], variable: str) -> bool:
    """True where the variable is set to anything but nothing, 0, false or no."""
    return env.get(variable, "").strip().lower() not in {"", "0", "false", "no", "off"}


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
