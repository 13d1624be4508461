"""`rlvr doctor`: prerequisites found, missing, crashing."""

from __future__ import annotations

import json

CHECKS = """
    from rlvr import hookimpl
    from rlvr import Check, CheckResult
    RLVR_API = 1

    @hookimpl
    def rlvr_checks():
        for name, required, slow in {checks!r}:
            yield Check(name=name, target=__name__ + ":" + name, required=required, is_slow=slow)

    def there():
        return CheckResult(ok=True, found="version 12")

    def missing():
        return CheckResult(ok=False, found="not on the path", fix="apt install iverilog")

    def crash():
        raise OSError("cannot even look")

    def wrong():
        return True
"""


def diagnosed(site, *checks, words=()):
    """Exit code and findings of a plugin with those checks, by check name."""
    site.add("tools", CHECKS.format(checks=checks))
    done = site.rlvr("doctor", "--plugin", "tools", "--json", *words)
    report = json.loads(done.stdout)
    return done.returncode, report["ok"], {c["check"]: c for c in report["checks"]}


def test_all_there(plugin_site):
    """Exit 0 where every required check is ok; the core's own are always run."""
    code, ok, findings = diagnosed(plugin_site, ("there", True, False))

    assert (code, ok) == (0, True)
    assert findings["there"]["status"] == "ok"
    assert findings["there"]["found"] == "version 12"
    assert findings["python"]["status"] == findings["cache"]["status"] == "ok"


def test_something_required_is_missing(plugin_site):
    """Exit 4, with the command that mends it."""
    code, ok, findings = diagnosed(plugin_site, ("missing", True, False))

    assert (code, ok) == (4, False)
    assert findings["missing"]["status"] == "missing"
    assert findings["missing"]["fix"] == "apt install iverilog"


def test_something_optional_is_missing(plugin_site):
    """What is only nice to have does not fail the report."""
    code, _, findings = diagnosed(plugin_site, ("missing", False, False))

    assert code == 0
    assert findings["missing"]["status"] == "optional"


def test_a_check_that_crashes_has_failed(plugin_site):
    """A crash is reported with its reason and hides no other check."""
    code, _, findings = diagnosed(
        plugin_site, ("crash", True, False), ("wrong", True, False), ("there", True, False)
    )

    assert code == 4
    assert "OSError: cannot even look" in findings["crash"]["found"]
    assert "promised: a CheckResult; came: True (bool)" in findings["wrong"]["found"]
    assert findings["there"]["status"] == "ok"


def test_slow_checks_can_be_left_out(plugin_site):
    """--fast skips them and says so."""
    code, _, findings = diagnosed(plugin_site, ("crash", True, True), words=["--fast"])

    assert code == 0
    assert findings["crash"]["status"] == "skipped"


def test_the_table_names_the_fix(plugin_site):
    """People get the command to paste on a line of its own."""
    plugin_site.add("tools", CHECKS.format(checks=[("missing", True, False)]))

    done = plugin_site.rlvr("doctor", "--plugin", "tools")

    assert done.returncode == 4
    assert "to fix tools missing: apt install iverilog" in done.stdout
    assert "something required is missing" in done.stdout


def test_a_broken_plugin_is_a_finding(plugin_site):
    """Without --plugin the report covers plugins that do not load."""
    plugin_site.add("bad", "import a_module_that_is_not_installed\n")

    done = plugin_site.rlvr("doctor", "--fast", "--json", RLVR_PLUGINS="bad")

    (finding,) = [c for c in json.loads(done.stdout)["checks"] if c["plugin"] == "bad"]
    assert done.returncode == 4
    assert "a_module_that_is_not_installed" in finding["found"]
    assert finding["fix"].endswith("pip install --force-reinstall rlvr-bad")


def test_an_unknown_plugin(plugin_site):
    """Asking for a plugin that is not there exits 3."""
    assert plugin_site.rlvr("doctor", "--plugin", "nobody").returncode == 3


def test_a_cache_that_cannot_be_written(plugin_site):
    """The verdict store needs a place: a required check of the core."""
    (plugin_site.home / "file").write_text("", encoding="utf-8")

    done = plugin_site.rlvr("doctor", "--plugin", "builtin", RLVR_CACHE_DIR="file/below")

    assert done.returncode == 4
    assert "RLVR_CACHE_DIR" in done.stdout
