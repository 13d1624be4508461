"""Read-only arrays and mappings, and the converters that make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]

EQUAL = attrs.cmp_using(eq=np.array_equal)


def frozen_array(values: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A read-only copy of these values."""
    array = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


def ints(values: ArrayLike) -> IntArray:
    """Read-only int32."""
    return frozen_array(values, np.int32)


def floats(values: ArrayLike) -> FloatArray:
    """Read-only float32."""
    return frozen_array(values, np.float32)


def bools(values: ArrayLike) -> BoolArray:
    """Read-only booleans."""
    return frozen_array(values, np.bool_)


def as_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    """These values as a tuple."""
    # `converter=tuple` itself leaves mypy an unbound type variable at every caller
    return tuple(values)


def frozen_map(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A read-only copy of a mapping."""
    return FrozenMap(values)


class FrozenMap(dict[str, Any]):
    """A mapping that cannot be changed after it was made (a dict, so it pickles and prints)."""

    def _refuse(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("records are frozen: make a new one with attrs.evolve")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = clear = setdefault = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, so hashable by identity of keys
        return hash(tuple(sorted(self)))

    def __reduce__(self) -> tuple[type[FrozenMap], tuple[dict[str, Any]]]:
        return FrozenMap, (dict(self),)


EMPTY: Mapping[str, Any] = MappingProxyType({})
