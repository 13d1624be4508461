"""Chooses the piece of a message for each file, by the piece's names and definitions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve

from rlvr_cvdp.extraction.assemble import Assembly, Found, other_file
from rlvr_cvdp.extraction.edits import edited, is_edit
from rlvr_cvdp.extraction.pieces import Piece, name_in, tidied
from rlvr_cvdp.extraction.segments import distinct_text
from rlvr_cvdp.extraction.traits import (
    is_bench,
    is_code,
    is_doubtful,
    is_elided,
    is_header,
    is_hollow,
)  # fmt: skip
from rlvr_cvdp.extraction.wanted import Wanted
from rlvr_cvdp.hdl.definitions import Definition, definitions_of
from rlvr_cvdp.paths import HDL, tree_path


class Choice:
    """The piece that becomes each file (`files`), and the reason in words (`how`)."""

    def __init__(self, pieces: Sequence[Piece], wanted: Wanted, text: str) -> None:
        self._wanted = wanted
        split = [
            part
            for piece in pieces
            if not is_edit(piece)
            for part in _by_files(evolve(piece, body=tidied(piece.body)))
        ]
        self._found = [self._resolved(piece, order) for order, piece in enumerate(split)]
        self.ignored = tuple(
            dict.fromkeys(found.piece.name for found in self._found if found.is_other)
        )
        self._owners = {name: path for path in wanted.targets for name in wanted.names(path)}
        self._chosen: dict[str, tuple[Found, tuple[str, ...]]] = {}
        hdl = [path for path in wanted.targets if path.endswith(HDL)]
        for path in hdl:
            self._by_name(path)
        edits = edited(text, wanted.initial, self._target_of)
        for path, body in edits.items():
            if path not in self._chosen:
                piece = Piece(body=body, name=path, is_sure=True, where="edits of the given file")
                names = tuple(d.name for d in definitions_of(body) if d.name in self._owners)
                found = Found(piece=piece, order=len(self._found), target=path)
                self._chosen[path] = found, names
        self._by_elimination([path for path in hdl if path not in self._chosen])
        for path in hdl:
            if path not in self._chosen:
                self._by_any_code(path)
        assembly = Assembly(self._found, self._chosen, self._owners, wanted)
        self.files, self.how = assembly.files, assembly.how
        for path in wanted.targets:
            is_alone = len(wanted.targets) == 1
            other = None if path in hdl else other_file(path, self._found, text, is_alone=is_alone)
            if other:
                self.files[path], self.how[path] = other

    def _resolved(self, piece: Piece, order: int) -> Found:
        target = self._target_of(piece.name) if piece.name else ""
        is_other = bool(piece.name) and (piece.is_sure or "/" in piece.name)
        return Found(piece=piece, order=order, target=target, is_other=is_other and not target)

    def _target_of(self, name: str) -> str:
        """The target that a name means, "" for none; without a name, the only target."""
        targets = self._wanted.targets
        if not name:
            return targets[0] if len(targets) == 1 else ""
        normal, plain = tree_path(name), name.strip().replace("\\", "/")
        if normal in targets:
            return str(normal)
        same = [path for path in targets if plain == path.rsplit("/", 1)[-1]]
        same = same or [path for path in targets if plain.endswith(f"/{path}")]
        is_plain = bool(normal or plain.startswith("/")) and ".." not in plain
        return same[0] if len(same) == 1 and is_plain else ""

    # -- which piece -------------------------------------------------------------------------

    def _by_name(self, path: str) -> None:
        """The last whole piece that names the file, or defines a module that it should define."""
        best: tuple[tuple[object, ...], Found, tuple[str, ...]] | None = None
        for found in self._found:
            if found.is_foreign(self._wanted):
                continue
            score, names = self._score(found, path)
            if score and (best is None or score > best[0]):
                best = (score, found, names)
        if best and best[0][0] == 1:
            best = self._continued(best[1], path, best[2]) or best
        if best:
            self._chosen[path] = best[1], best[2]

    def _score(self, found: Found, path: str) -> tuple[tuple[object, ...], tuple[str, ...]]:
        """How well a piece serves as a file (empty: not at all), and the modules that say so."""
        wanted, defined = self._wanted.names(path), found.defined
        mine = [d for d in defined if d.name in wanted]
        is_named = found.target == path
        foreign = [d for d in defined if self._owners.get(d.name, path) != path]
        rest = [d for d in defined if d not in mine and d not in foreign]
        quality = 0
        if any(d.is_complete for d in mine):
            quality = 4 if is_named or not found.is_other else 3
            main = [d for d in mine if d.is_complete]
        elif is_named and any(d.is_complete and not is_bench(d, wanted) for d in rest):
            quality, main = 3, [d for d in rest if d.is_complete]
        elif is_named and not defined and is_header(path) and is_code(path, found.body):
            quality, main = 3, []
        elif mine:
            quality, main = 1, mine
        else:
            return (), ()
        body = found.body
        whole = [d for d in main if not is_hollow(body[d.start : d.end], d)]
        texts = [body[d.start : d.end] for d in main] or [body]
        is_cut = all(is_elided(text) for text in texts)
        initial = self._wanted.initial.get(path, "")
        score = (
            quality,
            any(d.name in self._wanted.mains(path) for d in main),
            not (initial.strip() and distinct_text(initial) == distinct_text(body)),
            not is_cut and (bool(whole) or not main),
            not is_doubtful(found.piece.lead),
            found.order,
        )
        return score, tuple(d.name for d in main)

    def _continued(
        self, first: Found, path: str, names: tuple[str, ...]
    ) -> tuple[tuple[object, ...], Found, tuple[str, ...]] | None:
        """A module that was cut into several blocks, put together again."""
        text = first.body
        for found in self._found[first.order + 1 : first.order + 6]:
            if found.is_other or found.target not in ("", path) or found.defined:
                return None
            text = text.rstrip("\n") + "\n" + found.body
            whole = [d for d in definitions_of(text) if d.name in names and d.is_complete]
            if whole:
                piece = evolve(first.piece, body=text, where=f"{first.piece.where}, continued")
                return (4,), evolve(first, piece=piece), names
        return None

    def _by_elimination(self, paths: Sequence[str]) -> None:
        """Modules of other names, for targets that no piece names or defines."""
        roots = self._roots()
        if len(paths) == 1:
            ranked = sorted(roots, key=self._rank)
            if ranked:
                found, definition = ranked[-1]
                self._chosen[paths[0]] = found, (definition.name,)
            return
        names = list(dict.fromkeys(definition.name for _, definition in roots))
        if paths and len(names) == len(paths):
            for path, name in zip(paths, names, strict=True):
                ranked = sorted((r for r in roots if r[1].name == name), key=self._rank)
                self._chosen[path] = ranked[-1][0], (name,)

    def _roots(self) -> list[tuple[Found, Definition]]:
        """Definitions that belong to no target and that no other one uses, without test benches."""
        pairs = [(found, d) for found in self._found for d in found.defined]
        used = {name for _, d in pairs if not is_bench(d, ()) for name in d.uses}
        taken = {name for _, names in self._chosen.values() for name in names} | {*self._owners}
        all_free = [(f, d) for f, d in pairs if not f.is_other and d.name not in taken]
        free = [(f, d) for f, d in all_free if d.name not in used and not is_bench(d, ())]
        return free or all_free

    def _rank(self, root: tuple[Found, Definition]) -> tuple[object, ...]:
        found, definition = root
        text = found.body[definition.start : definition.end]
        return (
            definition.is_complete,
            definition.name in self._wanted.tops,
            bool(re.search(rf"\b{re.escape(definition.name)}\b", self._wanted.prompt)),
            definition.kind in ("module", "macromodule"),
            not is_elided(text) and not is_hollow(text, definition),
            not is_doubtful(found.piece.lead),
            found.order,
            definition.start,
        )

    def _by_any_code(self, path: str) -> None:
        """Take code that names the file; any code if there is one target or one header."""
        headers = [p for p in self._wanted.targets if is_header(p)]
        for found in reversed(self._found):
            is_only = len(self._wanted.targets) == 1 or headers == [path]
            is_ours = found.target == path or (is_only and not found.target)
            if is_ours and not found.is_other and not found.defined and is_code(path, found.body):
                self._chosen[path] = found, ()
                return


def _by_files(piece: Piece) -> list[Piece]:
    """The parts of a piece where lines between its definitions name several files."""
    defined = definitions_of(piece.body)
    if len(defined) < 2:
        return [piece]
    marks: list[tuple[int, int, str]] = []
    place = 0
    inside = iter([*defined, None])
    current = next(inside)
    for line in piece.body.splitlines(keepends=True):
        end = place + len(line)
        while current is not None and current.end <= place:
            current = next(inside)
        if current is None or place < current.start:
            name, is_sure = name_in(line)
            if is_sure:
                is_comment = line.lstrip().startswith(("//", "/*"))
                marks.append((place, place if is_comment else end, name))
        place = end
    if len({name for _, _, name in marks}) < 2:
        return [piece]
    ends = [start for start, _, _ in marks[1:]] + [len(piece.body)]
    head = piece.body[: marks[0][0]]
    parts = [evolve(piece, body=head)] if definitions_of(head) else []
    for (_, start, name), end in zip(marks, ends, strict=True):
        parts.append(evolve(piece, body=piece.body[start:end], name=name, is_sure=True))
    return parts
