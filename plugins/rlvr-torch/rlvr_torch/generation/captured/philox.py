"""The uniform numbers of NumPy's Philox generator, at any place of any stream, on any device.

A number depends on its seed and its place alone, so rows of a batch draw theirs at once and nothing
is kept. Integers are 64 bits wide and wrap, as in the generator (Philox4x64-10).

Source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3".
"""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDS = 10
_LOW = 0xFFFFFFFF
_FIRST, _SECOND = 0xD2E7470EE14C6C93, 0xCA5A826395121157  # multipliers
_BUMPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # what each round adds to the two halves of a key
_UNIT = 2.0**-53


def keys_of(seed: int) -> tuple[int, int]:
    """The two halves of a seed as NumPy's Philox takes it, as signed 64 bits."""
    return _signed(seed), _signed(seed >> 64)


def uniforms(keys: Tensor, places: Tensor) -> Tensor:
    """
    Numbers that `numpy.random.Generator(Philox(key=seed)).random` draws, rounded to float32.

    Args:
        keys: `keys_of` each row's seed, (R, 2) int64.
        places: How many numbers are drawn before, (R, N) int64, not negative.

    Returns:
        (R, N) float32 in [0, 1]; NumPy's numbers below 1 may round to 1.
    """
    low, high = keys[:, :1], keys[:, 1:]
    first = places // 4 + 1  # NumPy counts before it draws; four numbers a count
    second = torch.zeros_like(places)
    third, fourth = second, second
    for turn in range(_ROUNDS):
        if turn:
            low, high = low + _signed(_BUMPS[0]), high + _signed(_BUMPS[1])
        upper, lower = _product(first, _FIRST)
        upper_third, lower_third = _product(third, _SECOND)
        first, second, third, fourth = (
            upper_third ^ second ^ low,
            lower_third,
            upper ^ fourth ^ high,
            lower,
        )
    lane = places % 4
    drawn = torch.where(lane < 2, torch.where(lane == 0, first, second), third)
    drawn = torch.where(lane == 3, fourth, drawn)
    return (_shifted(drawn, 11).double() * _UNIT).float()


def _product(values: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """The upper and the lower 64 bits of unsigned products."""
    top, bottom = factor >> 32, factor & _LOW
    high, low = _shifted(values, 32), values & _LOW
    least = low * bottom
    cross, other = high * bottom, low * top
    middle = _shifted(least, 32) + (cross & _LOW) + (other & _LOW)
    upper = high * top + _shifted(cross, 32) + _shifted(other, 32) + _shifted(middle, 32)
    return upper, values * _signed(factor)


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Shift right as unsigned numbers."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """The lower 64 bits as torch's signed integer."""
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value
