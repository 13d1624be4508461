"""The rules that keep the arrows pointing inward."""

from __future__ import annotations

import ast
import gc
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import rlvr
from rlvr.plugins.discovery import GROUP
from rlvr.plugins.known import PLUGINS

CORE = Path(rlvr.__file__).parent
TINKER = Path(__file__).parents[2] / "plugins" / "rlvr-tinker" / "rlvr_tinker"
HEAVY = ("torch", "tinker", "docker", "cocotb", "chess", "transformers", "safetensors", "ray")
FIRST_PARTY = {"rlvr", *PLUGINS.values()}
ENTRIES = [
    (entry.dist.name, entry.value)
    for entry in metadata.entry_points(group=GROUP)
    if entry.dist is not None and entry.dist.name in FIRST_PARTY
]


def imported_by(path):
    """Top names of all modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize(("distribution", "module"), ENTRIES)
def test_registering_imports_nothing_heavy(distribution, module):
    """Listing plugins costs no torch and no Docker: parts are imported when chosen."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )

    assert not set(HEAVY) & set(json.loads(done.stdout)), distribution


def test_the_builtin_plugin_is_among_those_that_are_checked():
    """The test above is about something: the core's own entry point, at least, is installed."""
    assert ("rlvr", "rlvr.builtin.plugin") in ENTRIES


@pytest.mark.parametrize(
    "path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE))
)
def test_the_core_imports_no_plugin_and_nothing_heavy(path):
    """Not at the top of a file and not inside a function either."""
    names = set(imported_by(path))

    assert not names & set(HEAVY)
    assert not {name for name in names if name.startswith("rlvr_")}


def test_hooks_are_called_in_one_file():
    """Hooks are called in plugins/host.py; everything else uses its typed methods."""
    calls = re.compile(r"\.hook\.|getattr\([\w.]*\.hook\b|subset_hook_caller|get_hookimpls")
    calling = {
        str(path.relative_to(CORE))
        for path in CORE.rglob("*.py")
        if calls.search(path.read_text(encoding="utf-8"))
    }

    assert calling == {"plugins/host.py"}


@pytest.mark.parametrize("package", [CORE, TINKER], ids=lambda path: path.name)
def test_no_module_outgrows_its_idea(package):
    """Past 300 lines a second idea has moved in."""
    sizes = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in package.rglob("*.py")}

    assert sizes
    assert {
        str(p.relative_to(package)): n for p, n in sizes.items() if n > 300 and p.name != "types.py"
    } == {}


def test_the_line_is_read_on_one_screen():
    """`train()` has at most 60 lines, and no word for which rooms and parts have the field's."""
    path = CORE / "training" / "loop.py"
    functions = ast.parse(path.read_text(encoding="utf-8")).body
    (train,) = (n for n in functions if isinstance(n, ast.AsyncFunctionDef) and n.name == "train")
    words = {n.attr for n in ast.walk(train) if isinstance(n, ast.Attribute)}
    words |= {n.id for n in ast.walk(train) if isinstance(n, ast.Name)}

    assert train.end_lineno - train.lineno + 1 <= 60
    assert not words & {"watch", "consult", "refine", "weighed", "told", "feed", "ledger", "judge"}


SHIPPED = [CORE, *CORE.parents[1].glob("plugins/*/rlvr_*"), *CORE.parents[1].glob("rlvr-*/rlvr_*")]
REFUSED = {("border/kinds.py", "isinstance(part, base)")}
"""The one check that an object derives from its kind's base class (`fault_of_part`)."""


def kinds_of_part(trees):
    """Names of all shipped classes that derive from `Part`, however far."""
    classes = [c for tree in trees for c in classes_of(tree)]
    found, before = {"Part"}, set()
    while found != before:
        before = set(found)
        found |= {c.name for c in classes if {last_name(b) for b in c.bases} & found}
    return found


def classes_of(node):
    """The classes that are defined in a statement, wherever: expressions hold none."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield inner
        if not isinstance(inner, ast.expr):
            yield from classes_of(inner)


def last_name(node):
    """`Policy` of `rlvr.Policy`, `Policy` and `Policy[T]`."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


ASKS = re.compile(r"isinstance|hasattr|getattr|\bcase\b")
"""In the text of each question."""


def questions_of(tree, kinds):
    """Calls that ask a part what it is, or whether it has something."""
    named = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower() for kind in kinds} | {"part"}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[asked, of]):
                names = {last_name(n) for n in ast.walk(of)}
                is_base = last_name(asked) in named and names & {"base", "cls", "kind"}
                if names & kinds or is_base:
                    yield ast.unparse(node)
            case ast.Call(func=ast.Name(id="hasattr" | "getattr" as f), args=[asked, what, *more]):
                is_inner = isinstance(what, ast.Constant) and str(what.value).startswith("__")
                if last_name(asked) in named and (f == "hasattr" or more) and not is_inner:
                    yield ast.unparse(node)
            case ast.MatchClass(cls=cls) if last_name(cls) in kinds:
                yield f"case {ast.unparse(cls)}"


def test_no_part_is_asked_what_it_is():
    """What a part may do is a method or a declaration of its base class (not in the kit)."""
    paths = [(root, p) for root in SHIPPED for p in root.rglob("*.py")]
    gc.disable()  # it would look at all trees again and again, for three times as long
    try:
        texts = {path: path[1].read_text(encoding="utf-8") for path in paths}
        trees = {path: ast.parse(text) for path, text in texts.items()}
    finally:
        gc.enable()
    kinds = kinds_of_part(trees.values())
    asked = {
        (str(path.relative_to(root)), question)
        for (root, path), tree in trees.items()
        if "testing" not in path.parts and ASKS.search(texts[root, path])
        for question in questions_of(tree, kinds)
    }

    assert kinds >= {"Policy", "SadTask", "AgentPolicy", "ProxyReward", "TorchBackend"}
    assert asked == REFUSED


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(policy, ServerPolicy)",
        "isinstance(self.policy, rlvr.Policy | None)",
        "isinstance(x, (int, RewardWrapper))",
        "hasattr(reward, 'second_opinion')",
        "getattr(self._task, 'curriculum', None)",
        "isinstance(backend, base)",
        "match x:\n    case Sampler():\n        pass",
    ],
)
def test_a_question_to_a_part_is_found(source):
    """The test above is about something."""
    kinds = {"ServerPolicy", "Policy", "RewardWrapper", "Reward", "Task", "Sampler", "Backend"}

    assert list(questions_of(ast.parse(source.replace("self._task", "self.task")), kinds))


def test_the_page_of_the_architecture_shows_the_layers_of_the_core():
    """Every folder and module, in the layers that import-linter checks."""
    root = Path(__file__).parents[2]
    config = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (core,) = (c["layers"] for c in config["contracts"] if c["id"] == "floors-of-the-core")
    page = (root / "docs" / "architecture.md").read_text("utf-8")
    drawn = page.partition("## Folders and layers")[2].split("```")[1].strip("\n")
    told = [
        set(re.findall(r"([a-z_]+)(?=/|\.py\b)", layer)) for layer in re.split(r"\n(?! )", drawn)
    ]

    assert told == [set(layer.split(" | ")) for layer in core if layer != "__main__"]
