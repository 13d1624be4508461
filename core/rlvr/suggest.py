"""The nearest known name, and likeness of names, for messages that end in a suggestion."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

LIKE = 0.8
"""Share of equal letters (`difflib` ratio) from which a name is warned of."""
LONG = 6
"""Letters from which one other letter makes a slip: shorter words are often another word."""
WEAK = frozenset(
    "at of is has can with for to by in from per why take next on get".split()  # noqa: SIM905
)
"""Words that two names may share by chance."""
ENDINGS = frozenset(
    "a able ability abilities ation ations d e ed en er ers es ies ied ing ings ion ions ity "  # noqa: SIM905
    "ization izations ive ly ment ments n or ors r rs s um ums y".split()
)
"""Endings in which forms of one word differ: annotate and annotation, writes and writing."""
FORMS = {"proof": "prove", "choice": "choose", "chosen": "choose", "kept": "keep", "met": "meet"}
"""Forms of a word that share no stem with it."""
COMMON = frozenset({"close", "end", "judge", "name", "state"})
"""Words that many authors use, whatever a kind knows."""


CLOSE = 0.6
"""Share of equal letters from which a name is suggested."""


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """
    The candidate that looks most like `name`, None where none is close.

    Where the namespace exists (`train` of `train.lr`) the last parts alone are compared, and those
    in it go first. Of equally like ones the one is meant that is equal for longest from the start.
    """
    known = sorted(set(candidates) - {name})
    place, _, last = name.rpartition(".")
    # letters that changed places are the likeliest slip: `gpro` is `grpo` before it is `gspo`
    if matches := [k for k in known if sorted(k.lower()) == sorted(name.lower())]:
        return matches[0]
    is_there = any(k.rpartition(".")[0] == place for k in known)
    scored = []
    for other in known:
        own, _, its = other.rpartition(".")
        one, two = (last, its) if is_there else (name, other)
        is_begun = len(one) > 2 and two.startswith(one)  # `temp` for `temperature`
        goes_on = own == place and len(two) > 1 and one.startswith(two)  # `lrate` for `lr`
        if (like := _ratio(one, two)) >= CLOSE or is_begun or goes_on:
            scored.append((own == place, like, _same_start(one, two), other))
    if scored:
        return max(scored)[-1]
    # `lr` for `train.lr`: equal in the last part is close, however short; so is short for long
    ends = {k: k.rpartition(".")[2] for k in known}
    same = [k for k, end in ends.items() if end == last]
    short = {k: {last, end} & {_initials(last), _initials(end)} - {""} for k, end in ends.items()}
    initials = [k for k in known if short[k]]
    found = same or sorted(initials, key=lambda k: k.rpartition(".")[0] != place)
    return found[0] if found else None


def _initials(name: str) -> str:
    """`lr` of `learning_rate`; "" of a single word."""
    words = re.split(r"[-_]", name)
    return "".join(word[:1] for word in words) if len(words) > 1 else ""


def _same_start(one: str, other: str) -> int:
    """Letters that two names share from their starts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _ratio(one: str, other: str) -> float:
    import difflib  # only errors need it

    one, other = one.lower(), other.lower()
    return difflib.SequenceMatcher(None, other, one).ratio()  # as `difflib.get_close_matches`


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`did you mean 'cvdp'?`, or an empty text where nothing is close."""
    match = nearest(name, candidates)
    return f"did you mean {match!r}?" if match else ""


def letters_of(name: str) -> str:
    """A name without underscores and capitals."""
    return name.replace("_", "").lower()


def words_of(name: str) -> list[str]:
    """The words of a name, without on and get before them."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    return words[1:] if words[0] in ("on", "get") and len(words) > 1 else words


def is_slip(name: str, known: str) -> bool:
    """Whether two names differ by at most one letter, or only by the order of their letters."""
    one, other = sorted((letters_of(name), letters_of(known)), key=len)
    if len(other) - len(one) > 1 or len(other) < 3:
        return False
    if sorted(one) == sorted(other):
        return True
    at = _same_start(one, other)
    return one[at:] == other[at + 1 :] or one[at + 1 :] == other[at + 1 :]


def is_sure(name: str, known: str) -> bool:
    """Whether a slip is no other word: in a short word one other letter makes a new word."""
    one, other = letters_of(name), letters_of(known)
    return len(other) >= LONG or len(one) != len(other) or sorted(one) == sorted(other)


def share(name: str, known: str) -> float:
    """Share of equal letters."""
    return _ratio(letters_of(known), letters_of(name))


def _is_form(own: str, word: str) -> bool:
    """Whether a word is a form of another one (proof, proving: prove) or short for it (ref)."""
    own = FORMS.get(own, own)
    if own in (word, FORMS.get(word)):
        return True
    if own in COMMON:
        return False
    for stem in range(_same_start(own, word), 2, -1):
        is_doubled = len(own) > stem + 1 and own[stem] == own[stem - 1]  # pin, pinned
        if {own[stem + is_doubled :] or "s", word[stem:] or "s"} <= ENDINGS:
            return True
    for short in (own, own.removesuffix("s")):
        rest = iter(word)
        is_spelt = not set(short[1:]) & set("aeiou") and all(letter in rest for letter in short)
        is_short = 2 < len(short) < len(word) - 1 and short[0] == word[0]
        if is_short and (is_spelt or word.startswith(short)):
            return True
    return False


def _are_forms(own: list[str], words: list[str]) -> bool:
    """Whether two names consist of forms of the same words; a leading is, has or can may differ."""
    own, words = (w[w[:1] in (["is"], ["has"], ["can"]) :] for w in (own, words))
    return len(own) == len(words) > 0 and all(map(_is_form, own, words))


def is_like(name: str, known: str) -> bool:
    """Whether a name may be meant as another one: many equal letters, or one wrong word."""
    own, words = words_of(name), words_of(known)
    if own == words or is_slip("".join(own), known) or share(name, known) >= LIKE:
        return True
    if _are_forms(own, words) or _are_forms([w for w in own if w != "of"][::-1], words):
        return True
    if len(words) == 1:
        one, other = own[0], words[0]
        is_stem = one.startswith(other) or other.startswith(one)
        return len(own) == 1 and is_stem and min(len(one), len(other)) > 3
    if len(own) == len(words):
        shared = {a for a, b in zip(own, words, strict=True) if a == b}
        return len(shared) == len(words) - 1 and not shared <= WEAK
    return any(own[:i] + own[i + 1 :] == words for i in range(len(own)))


def differ_by_a_word(name: str, known: str) -> bool:
    """Whether one name has a word more than the other: seconds and expected_seconds."""
    short, long = sorted((words_of(name), words_of(known)), key=len)
    rests = [long[:i] + long[i + 1 :] for i in range(len(long))]
    return not set(short) <= WEAK and short in rests


def asks_alike(one: object, other: object) -> bool:
    """Whether two functions take arguments of the same names."""
    if not (inspect.isfunction(one) and inspect.isfunction(other)):
        return False
    own, others = ([*inspect.signature(f).parameters][1:] for f in (one, other))
    return own == others != []
