"""`rlvr plugins new NAME --kind KIND`: writes a small package that passes `rlvr plugins check`."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import keyword
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any

from rlvr import testing
from rlvr.border.calls import article
from rlvr.config.core import CORE_OPTIONS
from rlvr.errors import ConfigError, ExitCode
from rlvr.install import pip_install, rlvr_command
from rlvr.plugins.host import PluginHost
from rlvr.plugins.offers import OFFERS

KINDS = {record.kind: (hook, record) for hook, record in OFFERS.items()}
"""Kind of part to the hook that offers it and the record that the hook yields."""
_TEMPLATE = Path(__file__).with_name("new_plugin.toml")
_WIDTH = 88
_LONGEST = 100
"""Characters of a name: the files that installers make of it have longer names."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("name", metavar="NAME", help="lower-case words with hyphens, as `--plugin`")
    parts = f"its part: {', '.join(KINDS)} (default: task)"
    parser.add_argument("--kind", choices=KINDS, default="task", metavar="KIND", help=parts)


def main(args: argparse.Namespace, host: PluginHost) -> int:
    """
    Write the package into a new folder `rlvr-NAME`, and say what comes next.

    Raises:
        ConfigError: No new plugin can have the name (`check_name`), or nothing can be written here.
    """
    folder = Path(f"rlvr-{args.name}")
    try:
        check_name(args.name, args.kind, host, folder)
        files = files_of(args.name, args.kind)
        with TemporaryDirectory(prefix=".rlvr-", dir=".") as place:  # all of it, or nothing
            for name, text in files.items():
                path = Path(place) / folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            (Path(place) / folder).rename(folder)
    except OSError as error:
        raise ConfigError(
            f"the package of the plugin {args.name} was to be written to {folder}.",
            f"found: {error.strerror or error}",
            "choose another name, or go to a folder that you may write",
        ) from error
    print(*(folder / name for name in files), sep="\n")
    check = rlvr_command("plugins", "check", args.name)
    print(f"next: {pip_install('-e', str(folder.resolve()))} && {check}")
    if command := command_of(args.name, args.kind):
        print(f"then: {rlvr_command(*command.split()[1:])}")
    for line in _of_kind(args.kind).get("more", []):
        print(_filled(line, {"name": args.name}))
    return ExitCode.DONE


def check_name(name: str, kind: str, host: PluginHost, folder: Path) -> None:
    """
    Reject a name that no new plugin can have.

    Raises:
        ConfigError: It is no lower-case identifier with hyphens, it (or a class called after it)
            means something already, or the folder exists: nothing is overwritten.
    """
    from rlvr.cli.main import COMMANDS, OFFERED  # main imports the module of this command

    module = _module(name)
    _, record = KINDS[kind]
    specs = [s for hook, r in OFFERS.items() if r is record for s in getattr(host, hook[5:])()]
    found = ""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        found = "it is not made of lower-case letters, digits and single hyphens"
    elif name.partition("-")[0] == "rlvr":
        found = "rlvr- is put before it anyway"
    elif len(name) > _LONGEST:
        found = f"it has {len(name)} characters, more than {_LONGEST}"
    elif keyword.iskeyword(name):
        found = "it is a word of Python"
    elif name == "none":
        found = f"none is the word for no {kind}"
    elif name in {**COMMANDS, **OFFERED}:
        found = f"rlvr {name} is a command"
    elif name.replace("-", "_") in CORE_OPTIONS:
        found = f"{name.replace('-', '_')}.KEY is an option of rlvr itself"
    elif rivals := [s.origin for s in host.plugins if s.name == name]:
        found = f"the plugin {name} is installed ({rivals[0]})"
    elif rivals := [s.full_name for s in specs if s.name == name]:
        found = f"there is {article(kind)} {kind} of that name: {rivals[0]}"
    elif importlib.util.find_spec(module) is not None:
        found = f"a module {module} can be imported already"
    elif twice := next(filter(None, map(_twice, files_of(name, kind).items())), ""):
        found = f"{twice} would be the name of two classes in it"
    elif folder.exists() or folder.is_symlink():
        found = f"{folder} exists here, and nothing is overwritten"
    if found:
        asked = f"a new plugin was to be called {name!r}."
        raise ConfigError(asked, f"found: {found}", "choose another name, such as my-sums")


def _twice(file: tuple[str, str]) -> str:
    """A name that a Python file defines, and defines or imports once more; "" without one."""
    nodes = ast.parse(file[1]).body if file[0].endswith(".py") else []
    of = [[node, *getattr(node, "names", ())] for node in nodes]
    names = [name for found in of for one in found if (name := getattr(one, "name", ""))]
    return next((name for name in names if names.count(name) > 1), "")


def command_of(name: str, kind: str) -> str:
    """A command that uses the new plugin; "" for a backend or teacher, whose example is a table."""
    return _filled(_of_kind(kind).get("run", ""), {"name": name})


def _of_kind(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(_TEMPLATE.read_text(encoding="utf-8"))["kinds"][kind]
    return found


def files_of(name: str, kind: str) -> dict[str, str]:
    """The new package's texts by path."""
    template = tomllib.loads(_TEMPLATE.read_text(encoding="utf-8"))
    parts = template["kinds"][kind]
    hook, record = KINDS[kind]
    stem = "".join(word.capitalize() for word in name.split("-"))
    values = {"name": name, "module": _module(name), "kind": kind, "hook": hook}
    values["a"] = article(kind).capitalize()
    values |= {"spec": record.__name__, "stem": stem, "part": f"{stem}{kind.capitalize()}"}
    contract = f"{kind.capitalize()}Contract"
    if "test" not in parts and contract in testing.__all__:
        parts |= _plain_test(kind, contract, "def __init__" in parts["body"])
    of = {key: _filled(parts.get(key, ""), values) for key in ("body", "fields", "test")}
    command = command_of(name, kind)
    kit = sorted(["PluginContract", *parts.get("test_names", [])])
    names = [*parts.get("names", []), record.__name__, "hookimpl"]
    values |= {
        "needs": ", ".join(f'"{need}"' for need in ["rlvr>=0.1,<0.2", *parts.get("needs", [])]),
        "imports": _imports(
            parts.get("stdlib", ["from collections.abc import Iterable"]),
            {"rlvr": names, "rlvr.testing": parts.get("kit", [])},
        ),
        "test_imports": _imports(
            parts.get("test_stdlib", []),
            {
                "rlvr": parts.get("test_uses", []),
                "rlvr.testing": kit,
                _module(name): [_filled(part, values) for part in parts.get("test_parts", [])],
            },
        ),
        **of,
        "use": f"Then use it:\n\n```sh\n{command}\n```\n\n" if command else "",
        "fields": _fields(of["fields"], len(record.__name__)),
    }
    texts = {_filled(path, values): text for path, text in template["files"].items()}
    return {path: _filled(text, values).strip() + "\n" for path, text in texts.items()}


def _plain_test(kind: str, contract: str, takes_context: bool) -> Mapping[str, Any]:
    """The contract of a part that needs nothing but to be made."""
    in_run = kind in ("callback", "checkpointer")
    context = f"None, BuildContext({'run_dir=directory' if in_run else ''})"
    test = (
        f"\n\nclass Test{kind.capitalize()}({contract}):\n"
        f"    def make_{kind}(self{', directory: Path' if in_run else ''}) -> $part:\n"
        f"        return $part({context if takes_context else ''})\n"
    )
    path = ["from pathlib import Path"] if in_run else []
    uses = ["BuildContext"] if takes_context else []
    names = {"test_names": [contract], "test_parts": ["$part"], "test_stdlib": path}
    return {"test": test, "test_uses": uses, **names}


def _imports(stdlib: Sequence[str], names: Mapping[str, Sequence[str]]) -> str:
    lines = []
    for module, some in names.items():
        ordered = sorted(some, key=lambda n: (n.islower(), n.lower()))
        line = f"from {module} import {', '.join(ordered)}"
        if len(line) > _WIDTH:
            line = f"from {module} import (\n" + "".join(f"    {n},\n" for n in ordered) + ")"
        lines += [line] if some else []
    blocks = ["from __future__ import annotations", "\n".join(stdlib), "\n".join(lines)]
    return "\n\n".join(filter(None, blocks))


def _fields(text: str, before: int) -> str:
    """A call's arguments, one a line where they do not fit into one."""
    if len(text) + before + 12 <= _WIDTH or text.startswith(" "):
        return f"\n{text}" if text.startswith(" ") else text
    each = re.split(r", (?=\w+=)", text)
    return "".join(f"\n        {one}," for one in each) + "\n    "


def _module(name: str) -> str:
    return f"rlvr_{name.replace('-', '_')}"


def _filled(text: str, values: Mapping[str, str]) -> str:
    return Template(text).substitute(values)
