"""What the pages point at exists: links, files, and the commands that they show."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import pytest

from rlvr import PartSpec, RlvrError
from rlvr.cli.main import COMMANDS
from rlvr.cli.parser import CommandParser
from rlvr.config.core import CORE_OPTIONS
from rlvr.config.part_flags import flag_of
from rlvr.plugins.host import PluginHost
from rlvr.plugins.offers import OFFERS, label
from rlvr.plugins.resolve import load_object

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in (".", "docs/**", "core", "rlvr-*", "plugins/*", "examples/*")
    for path in ROOT.glob(f"{pattern}/*.md")
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r"""(?:!\[|<img alt=")([^\]"]*)(?:\]\(|" src=")([^)"\s]+)""")
FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.\w+)`")
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
TOPS = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "runs"}
_PLUGINS = (["chess"], ["cvdp"], ["household"], ["sad"], ["tinker"], ["tinker-server"], ["torch"])
"""First words of the plugins' own commands, which parse what follows themselves."""


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    return FENCE.sub("", _text(page))


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def _commands(page: Path) -> Iterator[list[str]]:
    """The words after `rlvr` of every command in a page's shell blocks."""
    for block in FENCE.finditer(_text(page)):
        if block["language"] not in ("sh", "console", "bash"):
            continue
        for line in block["text"].replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words.pop(0)
            if words and words[0].rpartition("/")[2] == "rlvr":
                yield words[1:]


@cache
def _known_options() -> frozenset[str]:
    """Dotted keys of the core and of every part that is installed."""
    host = PluginHost.load()
    records = list(CORE_OPTIONS.items())
    for hook in OFFERS:
        for spec in getattr(host, label(hook))():
            if isinstance(spec, PartSpec) and spec.config:
                records.append((spec.option_namespace, load_object(spec.config, spec.provider)))
    return frozenset(
        f"{namespace}.{name}" for namespace, record in records for name in attrs.fields_dict(record)
    )


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link inside the repository names a file that exists, and a heading that is in it."""
    for link in LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{_name(page)}: {link}"
        assert target.is_relative_to(ROOT), f"{_name(page)}: {link} leaves the repository"
        if anchor:
            assert anchor in _anchors(target), f"{_name(page)}: no heading for {link}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_pictures_exist_and_say_what_they_show(page: Path) -> None:
    """A picture is a file of the repository and has words for readers who do not see it."""
    for words, link in IMAGE.findall(_prose(page)):
        assert (page.parent / link).is_file(), f"{_name(page)}: {link}"
        assert len(words.split()) > 1, f"{_name(page)}: {link} has no text alternative"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_files_that_are_named_exist(page: Path) -> None:
    """A path in code marks that begins with one of the repository's folders is a file in it."""
    for path in FILE.findall(_prose(page)):
        if path.partition("/")[0] in TOPS:
            places = (ROOT, page.parent, ROOT / "examples" / "rlvr-countdown")
            assert any((place / path).exists() for place in places), f"{_name(page)}: `{path}`"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_can_be_parsed(page: Path) -> None:
    """Every `rlvr` command that is shown has flags and options that exist."""
    for words in _commands(page):
        shown = f"{_name(page)}: rlvr {shlex.join(words)}"
        if not words or words[0] not in COMMANDS:
            assert words[:1] in (["--help"], ["--version"], *_PLUGINS), shown
            continue
        where, summary = COMMANDS[words[0]]
        module = importlib.import_module(where)
        parser = CommandParser(prog=f"rlvr {words[0]}", description=summary)
        module.configure(parser)
        if {"-h", "--help"} & set(words):
            continue
        try:
            args = parser.parse_args(words[1:])
        except RlvrError as error:
            pytest.fail(f"{shown}\n{error}")
        for override in getattr(args, "overrides", None) or []:
            assert override.partition("=")[0] in _known_options(), f"{shown}: {override}"
        for flag, _value in args.part_flags.given if hasattr(args, "part_flags") else ():
            assert flag in map(flag_of, _known_options()), f"{shown}: {flag}"


def test_options_in_the_text_exist() -> None:
    """An option that prose names in code marks, `sampler.group_size`, is one of the core's."""
    known = _known_options()
    for page in PAGES:
        for key in re.findall(r"`([a-z]+\.[a-z_0-9]+)(?:=[^`]*)?`", _prose(page)):
            if key.partition(".")[0] in CORE_OPTIONS and not key.endswith((".md", ".py")):
                assert key in known or key.endswith((".json", ".jsonl")), f"{_name(page)}: {key}"


def test_every_page_is_reached_from_the_index() -> None:
    """Starting at docs/index.md, links lead to every page under docs/."""
    index = ROOT / "docs" / "index.md"
    reached, waiting = {index}, [index]
    while waiting:
        page = waiting.pop()
        for link in LINK.findall(_prose(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target not in reached and target.exists():
                reached.add(target)
                waiting.append(target)

    assert not set((ROOT / "docs").rglob("*.md")) - reached


def test_makefile_has_the_targets_that_pages_name() -> None:
    """`make NAME` in a page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    for page in PAGES:
        shown = "\n".join(block["text"] for block in FENCE.finditer(_text(page)))
        named = re.findall(r"^make ([a-z-]+)", shown, re.MULTILINE)
        for name in named + re.findall(r"`make ([a-z-]+)", _prose(page)):
            assert name in targets, f"{_name(page)}: make {name}"
