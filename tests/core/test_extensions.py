"""Hooks that a plugin specifies for plugins of its own."""

from __future__ import annotations

import pytest

from rlvr import Offer, PluginError, offered
from rlvr.plugins.host import PluginHost

OWNER = """
    from rlvr import hookimpl
    RLVR_API = 1
    RLVR_HOOKSPECS = "{specs}"

    @hookimpl
    def {hook}():
        return ["own"]
"""
SPECS = """
    from rlvr import hookspec
    RLVR_API = 1

    @hookspec
    def {hook}():
        "Offer words."
"""
GUEST = """
    from rlvr import hookimpl
    RLVR_API = 1

    @hookimpl(optionalhook={optional})
    def zoo_words():
        {body}
"""


def load(*names):
    """A host with these plugins."""
    return PluginHost.load({"RLVR_PLUGINS": ",".join(names)})


def status(host, name):
    """What became of one plugin."""
    return next(s for s in host.plugins if s.name == name)


@pytest.fixture
def zoo(importable_site):
    """A plugin `zoo` with a hook of its own, and how to add guests that implement it."""
    module = importable_site.add("zoospecs", SPECS.format(hook="zoo_words")).stem
    importable_site.add("zoo", OWNER.format(specs=module, hook="zoo_words"))

    def guest(name, body, optional=False):
        importable_site.add(name, GUEST.format(body=body, optional=optional))

    return guest


def test_a_plugin_asks_others_through_a_hook_of_its_own(zoo):
    """Whoever loads first: guests that sort before the owner are heard too, with their names."""
    zoo("ant", "return iter(['a', 'b'])")

    host = load("ant", "zoo")

    assert sorted(o.record for o in offered("zoo_words", str, host)) == ["a", "b", "own"]
    assert Offer("ant", "a") in offered("zoo_words", str, host)
    assert status(host, "ant").hooks == ("zoo_words",)


def test_without_the_owner_its_hook_is_unknown(zoo):
    """A guest of an absent owner is broken, unless it says that the hook is optional."""
    zoo("ant", "return ['a']")
    zoo("bee", "return ['b']", optional=True)

    host = load("ant", "bee")

    assert status(host, "ant").status == "broken"
    assert "zoo_words" in status(host, "ant").reason
    assert status(host, "bee").is_active
    with pytest.raises(PluginError, match="no active plugin specifies a hook 'zoo_words'"):
        offered("zoo_words", str, host)


@pytest.mark.parametrize(
    ("body", "said"),
    [("return [1]", "yielded int, expected str"), ("raise OSError('full')", "full")],
)
def test_a_guest_that_answers_wrongly_is_named(zoo, body, said):
    """Neither another type nor an exception passes without the plugin's name."""
    zoo("ant", body)

    with pytest.raises(PluginError, match=said) as caught:
        offered("zoo_words", str, load("ant", "zoo"))

    assert "'ant'" in str(caught.value)


@pytest.mark.parametrize("hook", ["rlvr_tasks", "words", "zoology"])
def test_a_plugin_specifies_under_its_own_name_only(importable_site, hook):
    """A hook of the core, or of nobody, cannot be taken: the plugin is broken and says why."""
    module = importable_site.add("zoospecs", SPECS.format(hook=hook)).stem
    importable_site.add("zoo", f"RLVR_API = 1\nRLVR_HOOKSPECS = {module!r}\n")

    host = load("zoo")

    assert status(host, "zoo").status == "broken"
    assert f"specifies {hook}; hooks of 'zoo' begin with 'zoo_'" in status(host, "zoo").reason


def test_a_hook_of_the_core_is_no_extension():
    """The core's own hooks stay behind their typed methods."""
    with pytest.raises(PluginError, match="rlvr_tasks"):
        offered("rlvr_tasks", object, load())
