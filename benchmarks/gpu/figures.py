"""Arithmetic of the figures: products of a model, limits, and what is believable."""

from __future__ import annotations

from attrs import frozen

from rlvr_torch.models.shape import Shape


class NotBelievableError(Exception):
    """A figure is above what the device can do: the clock or the count is wrong."""


@frozen(kw_only=True)
class Device:
    """Where the figures come from, and its limits."""

    name: str
    peak: float  # measured TFLOP/s of a matrix product
    bandwidth: float  # measured GB/s
    sheet: tuple[float, float] | None = None  # TFLOP/s and GB/s by the data sheet

    def check(self) -> None:
        """`NotBelievableError` where what was measured is above the data sheet."""
        for found, most, unit in zip(
            (self.peak, self.bandwidth), self.sheet or (), ("TFLOP/s", "GB/s"), strict=False
        ):
            if found > most:
                raise NotBelievableError(
                    f"{found:.1f} {unit} were measured on {self.name}, whose data sheet says "
                    f"{most:g}: no figure of this run is believable"
                )

    def believable(self, tflops: float) -> float:
        """The figure; `NotBelievableError` where it is above the device's peak."""
        most = self.sheet[0] if self.sheet else self.peak
        if tflops > most:
            raise NotBelievableError(
                f"{tflops:.1f} TFLOP/s were measured on {self.name}, which reaches {most:.1f}: "
                "not believable"
            )
        return tflops


@frozen(kw_only=True)
class Work:
    """Groups of completions that share their prompts."""

    groups: int
    group: int  # completions of a prompt
    prompt: int  # tokens
    completion: int  # tokens

    @property
    def drawn(self) -> int:
        """Tokens that the policy wrote: those that meet the output head."""
        return self.groups * self.group * self.completion

    @property
    def tokens(self) -> int:
        """Tokens that training computes: each prompt once; a last token is predicted, not read."""
        return self.groups * (self.prompt + self.group * (self.completion - 1))


def training_flops(shape: Shape, work: Work, *, is_full: bool) -> float:
    """
    Products of one update, without what checkpointing computes again.

    Forward: 2 a weight and token, 4 for each pair of query and key (scores and values). Backward:
    twice that in full training; with frozen weights once (no gradient of a matrix), attention
    twice all the same. The head meets drawn tokens only.
    """
    pairs = work.prompt**2 / 2
    pairs += work.group * (work.completion * work.prompt + work.completion**2 / 2)
    attention = 4 * shape.layers * shape.queries * pairs * work.groups
    products = 2 * shape.linear * work.tokens + 2 * shape.vocabulary * shape.width * work.drawn
    return products * (3 if is_full else 2) + 3 * attention


def decode_limit(shape: Shape, work: Work, gbps: float, bytes_a_number: int) -> float:
    """Tokens/s if each pass does nothing but read weights and keys once, prompts once a group."""
    weights = (shape.linear + shape.vocabulary * shape.width) * bytes_a_number
    own = work.groups * work.group * work.completion / 2
    keys = (work.groups * work.prompt + own) * 2 * shape.layers * shape.keys * bytes_a_number
    return work.groups * work.group * gbps * 1e9 / (weights + keys)
