"""Writes the text of each file: takes out modules of other files and adds the helpers it needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from attrs import frozen

from rlvr_cvdp.extraction.pieces import Piece
from rlvr_cvdp.extraction.segments import distinct_text, segments_of, without
from rlvr_cvdp.extraction.traits import is_elided
from rlvr_cvdp.extraction.wanted import Wanted
from rlvr_cvdp.hdl.definitions import Definition, definitions_of
from rlvr_cvdp.paths import HDL, tree_path

_LANGUAGES = {
    "md": {"md", "markdown"},
    "py": {"python", "py", "python3"},
    "tcl": {"tcl"},
    "sdc": {"sdc", "tcl"},
    "xdc": {"xdc", "tcl"},
    "txt": {"text", "txt", "plaintext"},
    "yml": {"yaml", "yml"},
    "yaml": {"yaml", "yml"},
    "json": {"json"},
    "c": {"c"},
    "cpp": {"cpp", "c++"},
    "sh": {"bash", "sh"},
}


@frozen(kw_only=True)
class Found:
    """A piece with its definitions, the target that its name means, and its place in the order."""

    piece: Piece
    order: int
    target: str = ""
    is_other: bool = False

    @property
    def body(self) -> str:
        """Its text."""
        return self.piece.body

    @property
    def defined(self) -> tuple[Definition, ...]:
        """The definitions of its text."""
        return definitions_of(self.piece.body)

    def is_foreign(self, wanted: Wanted) -> bool:
        """Whether a piece with another file's name is that file, and not one of ours misnamed."""
        if not self.is_other:
            return False
        name = self.piece.name.replace("\\", "/")
        ours = {name for target in wanted.targets for name in wanted.names(target)}
        if name.endswith(HDL) and self.defined and {d.name for d in self.defined} <= ours:
            return tree_path(name) in wanted.given  # our module in a folder that is none of ours
        normal = tree_path(name)
        is_away = normal is None or ".." in name or name.startswith("/")
        is_known = normal in wanted.given or str(normal).startswith(("src/", "rundir/"))
        return not name.endswith(HDL) or is_away or is_known


class Assembly:
    """The text of each Verilog target (`files`), and its origin in words (`how`)."""

    def __init__(
        self,
        everything: Sequence[Found],
        chosen: Mapping[str, tuple[Found, tuple[str, ...]]],
        owners: Mapping[str, str],
        wanted: Wanted,
    ) -> None:
        self._found, self._chosen, self._owners, self._wanted = everything, chosen, owners, wanted
        self._given = {
            d.name: text[d.start : d.end]
            for text in wanted.given.values()
            for d in definitions_of(text)
        }
        self._segments: dict[int, Mapping[Definition, str]] = {}
        self.files: dict[str, str] = {}
        self.how: dict[str, str] = {}
        mains = {name for _, names in chosen.values() for name in names}
        for path, (found, names) in chosen.items():
            drop = self._dropped(path, found, names, mains)
            text = without(found.body, found.defined, frozenset(drop)) if drop else found.body
            said = f"{found.piece.where}, " + ("named" if found.target == path else "by its module")
            if drop:
                said += "; without " + ", ".join(sorted({d.name for d in drop}))
            self.files[path], self.how[path] = text, said
        for path in chosen:
            self._join_helpers(path)

    def _dropped(
        self, path: str, found: Found, names: Collection[str], mains: Collection[str]
    ) -> list[Definition]:
        """Definitions to take out: another target, a given file or a later place has them."""
        drop: list[Definition] = []
        whole: dict[str, Definition] = {}
        for d in found.defined:
            owner = self._owners.get(d.name, path)
            if d.name not in names and d.name in mains:
                owner = next(p for p, (_, n) in self._chosen.items() if d.name in n)
            given = self._given.get(d.name) if d.name not in names else None
            same = distinct_text(found.body[d.start : d.end])
            is_given = given is not None and same == distinct_text(given)
            if (owner != path and owner in self._chosen) or is_given:
                drop.append(d)
                continue
            if d.name in whole and d.is_complete:
                drop.append(whole[d.name])
            whole[d.name] = d
        return drop

    def _join_helpers(self, path: str) -> None:
        """Put modules of no target into the file that instantiates them."""
        have = {
            d.name for text in self.files.values() for d in definitions_of(text) if d.is_complete
        }
        have |= {*self._given, *(n for n, owner in self._owners.items() if owner != path)}
        needed = {name for d in definitions_of(self.files[path]) for name in d.uses}
        first: list[str] = []
        last: list[str] = []
        joined: list[str] = []
        while missing := sorted(name for name in needed - have if name in self._helpers):
            needed = set()
            for name in missing:
                text, definition = self._helper(name)
                is_first = definition.kind in ("package", "interface")
                (first if is_first else last).append(text.strip("\n"))
                joined.append(name)
                have.add(name)
                needed |= definition.uses
        if joined:
            first.reverse()  # a package that another package needs stands before it
            self.files[path] = "\n\n".join([*first, self.files[path].rstrip("\n"), *last]) + "\n"
            self.how[path] += "; joined " + ", ".join(joined)

    def _helper(self, name: str) -> tuple[str, Definition]:
        """The last complete definition of a name, with the comments and directives before it."""
        _, found, definition = self._helpers[name]
        if found.order not in self._segments:
            self._segments[found.order] = segments_of(found.body, found.defined)
        own = found.body[definition.start : definition.end]
        return self._segments[found.order].get(definition, own), definition

    @cached_property
    def _helpers(self) -> Mapping[str, tuple[bool, Found, Definition]]:
        best: dict[str, tuple[bool, Found, Definition]] = {}
        for found in self._found:
            for d in found.defined if not found.is_foreign(self._wanted) else ():
                is_whole = not is_elided(found.body[d.start : d.end])
                if d.is_complete and (d.name not in best or is_whole >= best[d.name][0]):
                    best[d.name] = (is_whole, found, d)
        return best


def other_file(
    path: str, everything: Sequence[Found], text: str, *, is_alone: bool
) -> tuple[str, str] | None:
    """The text of a file that is not Verilog, and its origin: the last piece that fits."""
    languages = _LANGUAGES.get(path.rpartition(".")[2].lower(), set())
    filled = [f for f in everything if f.body.strip()]
    named = [f for f in filled if f.target == path]
    spoken = [f for f in filled if not f.piece.name and f.piece.language in languages]
    fenced = [f for f in filled if not f.piece.name and f.piece.where.startswith("fence")]
    is_text = path.lower().endswith((".md", ".rst", ".txt"))
    if named or spoken:
        found = (named or spoken)[-1]
        return found.body, f"{found.piece.where}, " + ("named" if named else "by its language")
    if is_alone and fenced and not is_text:
        return fenced[-1].body, fenced[-1].piece.where
    return (text.strip(), "the whole text") if is_alone and text.strip() else None
