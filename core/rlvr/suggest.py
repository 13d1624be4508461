"""The nearest known name, for error messages that end in a suggestion."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that looks most like `name`, None where none is close."""
    import difflib  # only errors need it

    known = sorted(set(candidates))
    # letters that changed places are the likeliest slip: `gpro` is `grpo` before it is `gspo`
    matches = [k for k in known if sorted(k) == sorted(name) and k != name][:1]
    matches = matches or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not matches:
        # `lr` for `train.lr`: equal in the last part is close, however short that part is.
        last = name.rpartition(".")[2]
        matches = [k for k in known if k.rpartition(".")[2] == last and k != name][:1]
    return matches[0] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`did you mean 'cvdp'?`, or an empty text where nothing is close."""
    match = nearest(name, candidates)
    return f"did you mean {match!r}?" if match else ""
