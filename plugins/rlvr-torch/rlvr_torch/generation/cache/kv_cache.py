"""Keys and values of a running batch: prompts stored once, and what each row generated.

A group's rows share their prompt's keys: they are stored, and read, once for the whole group
(attention over the prompt is one matrix product for each prompt, not one vector product for each
row). A row's own keys begin at its first own slot, whenever it joined. Every kind of `Heads` is
here; the results are those of `attention.attend_over`.

What a row gets does not depend on the other rows, on a CPU, to the bit. Masked keys add zeros; and
prompts are padded to whole steps, so that a row's own keys stay in the same lanes of a sum.

Shapes: P prompts, S slots of a prompt, R rows, N own slots that are looked at, H query heads, K key
heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr_torch.generation.cache.group_rows import GroupRows, is_lone
from rlvr_torch.generation.cache.prompts import STEP, Prompts, whole_steps
from rlvr_torch.generation.cache.row_states import RowStates
from rlvr_torch.models.attention import attend_over, causal
from rlvr_torch.models.interface import Heads

_FIRST_SLOTS = 64

_LEAST = 512  # numbers in a product of a row and a head: fewer are multiplied in another way
_QUERIES = 4  # fewer that look at a prompt together are multiplied in another way
_NEVER = 1 << 40  # position of a slot that holds nothing


class KVCache:
    """
    The cache of one batch. `attend_prompts` is the attention of a prefill, `attend` of decoding.

    It begins without room and grows with what it must hold.

    Attributes:
        prompts: The places of prompts.
        states: What layers keep beside keys.
        rows: Rows that take part in decoding; the first ones.
    """

    def __init__(
        self,
        heads: Sequence[Heads],  # the attention of each layer
        *,
        dtype: torch.dtype,  # type keys and values are kept in
        device: torch.device,  # where they are kept
        whole: Callable[[int], int] = whole_steps,  # rounds slots of prompts up
    ) -> None:
        self._heads, self._dtype, self._device = heads, dtype, device
        self.rows = 0
        self.prompts = Prompts(heads, dtype, device, whole)
        self.states = RowStates()
        self._keys: list[Tensor] = []  # of each layer, (rows, K, slots, D)
        self._values: list[Tensor] = []
        self._slots = 0
        self._clean = 0  # rows that hold finite numbers
        self._clock = 0  # passes so far
        self._owner: list[int | None] = []  # place of each row's prompt
        self._born: list[int] = []  # clock of each row's first pass
        self._reading: slice | Tensor = slice(0, 0)
        self._masks: dict[int | None, Tensor] = {}  # causal masks of the prefill under way
        self._biases: dict[int | None, Tensor] = {}  # of each window: (R, 1, 1, S + N)
        self._shows, self._hides = torch.tensor([0.0, float("-inf")], device=device)
        self._windows = {layer.window for layer in heads}
        queries = [layer.queries // layer.keys for layer in heads]
        self._seats = seats_of(heads)
        sizes = [q * layer.width for q, layer in zip(queries, heads, strict=True)]
        self._least = whole_steps(-(-_LEAST // min(sizes, default=_LEAST)))  # own slots
        self._width = 0  # N
        self._seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # of each layer
        self._own: list[tuple[Tensor, Tensor]] = []  # of each layer, of the rows that are decoded
        self._slot: int | None = None  # where all rows write in this pass
        self._write: dict[int, Tensor] = {}  # else: of each number of key heads, (R * K,)
        self._is_seated = False

    # Prompts

    def close_unused(self, wanted: set[Hashable]) -> None:
        """Free the places of prompts that no row reads, except the wanted ones."""
        self.prompts.close_unused({place for place in self._owner if place is not None}, wanted)
        self.states.keep(self.prompts.used)

    def read_prompts(self, places: Sequence[int], tokens: int) -> None:
        """Name the places that the next prefill fills, and its length in tokens."""
        first, count = places[0], len(places)
        is_run = list(places) == list(range(first, first + count))
        self.states.open(places, [self.prompts.lengths[place] for place in places])
        self._reading = (
            slice(first, first + count) if is_run else torch.tensor(places, device=self._device)
        )
        self._masks = {
            window: causal(tokens, self._device, window)
            for window in self._windows
            if window is not None and window < tokens
        }

    def attend_prompts(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention of a prefill (P', H, S', D); keys and values are kept."""
        heads = self._heads[layer]
        self.prompts.write(layer, self._reading, k, v)
        return attend_over(heads, q, k, v, self._masks.get(heads.window), sinks)

    # Rows

    def reserve(self, rows: int) -> None:
        if rows > len(self._owner):
            more = rows - len(self._owner)
            self._owner += [None] * more
            self._born += [0] * more
            self._grow(max(self._slots, _FIRST_SLOTS, self._least))

    def begin(self, row: int, place: int) -> None:
        """A completion of the prompt at `place` takes the row."""
        self._owner[row] = place
        self._born[row] = self._clock
        self.states.begin(row)
        self._is_seated = False

    def end(self, row: int) -> None:
        self._owner[row] = None

    def move(self, source: int, target: int) -> None:
        self._owner[target], self._owner[source] = self._owner[source], None
        self._born[target] = self._born[source]
        age = self._clock - self._born[source]
        for store in (self._keys, self._values):
            for layer in store:
                layer[target, :, :age] = layer[source, :, :age]
        self.states.move(source, target)
        self._is_seated = False

    def resize(self, rows: int) -> None:
        """Decode the first `rows` rows only."""
        for layer in (*self._keys, *self._values):
            layer[self._clean : rows].zero_()  # what is masked must be finite all the same
        self.rows, self._clean = rows, max(rows, self._clean)
        self._is_seated = False

    def tidy(self, rows: int) -> None:
        """
        Close the gaps between prompts.

        Where nearly every row has its own, a row keeps its place.
        """
        is_lone = len({place for place in self._owner if place is not None}) > rows - 2
        moved = self.prompts.tidy(rows if is_lone else 0)
        self._owner = [None if p is None else moved.get(p, p) for p in self._owner]
        self.states.rename(moved)
        self._is_seated = False

    def _grow(self, slots: int) -> None:
        """Make room for all rows and so many own slots; only the rows in use are copied."""
        used = min(self._clock - self._oldest, self._slots)
        for name in ("_keys", "_values"):
            shapes = [(len(self._owner), h.keys, slots, h.width) for h in self._heads]
            grown = [torch.empty(s, dtype=self._dtype, device=self._device) for s in shapes]
            for old, new in zip(getattr(self, name), grown, strict=False):
                new[: self.rows, :, :used] = old[: self.rows, :, :used]
                new[: self.rows, :, used:] = 0
            setattr(self, name, grown)
        self._slots, self._clean = slots, self.rows

    @property
    def _oldest(self) -> int:
        living = zip(self._born, self._owner, strict=True)
        return min((born for born, owner in living if owner is not None), default=self._clock)

    # Decoding

    def advance(self) -> Tensor:
        """
        Prepare one more token a row, before each decoding pass.

        Gives the tokens' positions (R, 1).
        """
        oldest = self._clock - self._oldest  # age of the oldest row: where it writes now
        if oldest >= self._slots:
            self._grow(2 * self._slots)
            self._is_seated = False
        if not self._is_seated:
            self._seat()
            self.states.seat(self._owner[: self.rows])
        width = max(self._least, whole_steps(oldest + 1))
        width = min(width, self._slots)
        if width != self._width or not self._seen:
            self._width = width
            self._find_seen()
        # A row that has ended may be older than all others: it writes to the last slot.
        age = (self._clock - self._births).clamp_(max=self._width - 1)  # (R,)
        self._slot = oldest if self._is_even else None
        if self._slot is None:
            self._write = {k: (base + age[:, None]).flatten() for k, base in self._bases.items()}
        positions = self._lengths + age[:, None]  # (R, 1)
        self._look(positions)
        self._clock += 1
        return positions

    def _seat(self) -> None:
        """Make the tables that depend on which prompt each row has, but not on the clock."""
        owner, lengths = self._owner[: self.rows], self.prompts.lengths
        places, self._span = self.prompts.places, self.prompts.span
        seats = max(self._seats, max(owner.count(place) for place in range(places)))
        if is_lone(owner, self.rows):
            places = self.rows
            self.prompts.reserve(places)
        self._group_rows = GroupRows(owner, places, seats, self._device)
        mine = [0 if place is None else lengths[place] for place in owner]
        self._lengths = torch.tensor(mine, device=self._device)[:, None]  # (R, 1)
        born = self._born[: self.rows]
        self._births = torch.tensor(born, device=self._device)  # (R,)
        living = {at for at, place in zip(born, owner, strict=True) if place is not None}
        self._is_even = len(living) == 1  # all rows write to the same slot
        prompt = torch.arange(self._span, device=self._device)
        prompt = torch.where(prompt < self._lengths, prompt, _NEVER)  # (R, S)
        own = self._lengths + torch.arange(self._slots, device=self._device)  # (R, slots)
        self._at = torch.cat([prompt, own], dim=1)  # position of each key
        self._bases = {}  # of each number of key heads: where a row's slots begin, (R, K)
        for keys in {layer.keys for layer in self._heads}:
            row_heads = torch.arange(self.rows * keys, device=self._device)
            self._bases[keys] = row_heads.view(-1, keys) * self._slots
        self._seen = []
        self._is_seated = True

    def _look(self, positions: Tensor) -> None:
        """Make the bias of each window for this pass: 0 for a visible key, else -inf."""
        at = self._at[:, : self._span + self._width]
        future = at > positions
        for window in self._windows:
            hidden = future if window is None else future | (at <= positions - window)
            bias = torch.where(hidden, self._hides, self._shows)
            self._biases[window] = bias[:, None, None]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention of a new token a row, q (R, H, 1, D), k and v (R, K, 1, D), over its past."""
        heads = self._heads[layer]
        if self._slot is None:
            self._put(self._keys[layer], k, heads)
            self._put(self._values[layer], v, heads)
        else:
            own_k, own_v = self._own[layer]
            own_k.narrow(2, self._slot, 1).copy_(k)
            own_v.narrow(2, self._slot, 1).copy_(v)
        bias, table = self._biases[heads.window], self._group_rows
        return attend_by_prompt(heads, q.to(self._dtype), self._seen[layer], table, bias, sinks).to(
            v.dtype
        )

    def _put(self, store: Tensor, new: Tensor, heads: Heads) -> None:
        new = new.reshape(-1, heads.width).to(self._dtype)
        store.view(-1, heads.width).index_copy_(0, self._write[heads.keys], new)

    def _find_seen(self) -> None:
        """Make the views of keys and values that each layer looks at."""
        places, self._seen = self._group_rows.shape[0], []
        stores = zip(self._keys, self._values, strict=True)
        self._own = [(keys[: self.rows], values[: self.rows]) for keys, values in stores]
        for layer, heads in enumerate(self._heads):
            prompt_k = self.prompts.keys[layer][:places, :, :, : self._span].flatten(0, 1)
            prompt_v = self.prompts.values[layer][:places, :, : self._span].flatten(0, 1)
            shape, count = (-1, self._slots, heads.width), self.rows * heads.keys
            own_k = self._keys[layer].view(shape)[:count, : self._width]
            own_v = self._values[layer].view(shape)[:count, : self._width]
            # (P * K, D, S), (P * K, S, D), (R * K, D, N), (R * K, N, D)
            self._seen.append((prompt_k, prompt_v, own_k.transpose(1, 2), own_v))


def seats_of(heads: Sequence[Heads]) -> int:
    """Rows that look at a prompt together, at least."""
    return -(-_QUERIES // min((layer.queries // layer.keys for layer in heads), default=_QUERIES))


def attend_by_prompt(
    heads: Heads,
    q: Tensor,  # (R, H, 1, D), of the type of keys and values
    seen: tuple[
        Tensor, Tensor, Tensor, Tensor
    ],  # of its prompts (P * K, D, S), (P * K, S, D), its own (R * K, D, N), (R * K, N, D)
    table: GroupRows,  # the rows by prompt
    bias: Tensor,  # (R, 1, 1, S + N), float32: 0 for a visible key, else -inf
    sinks: Tensor | None,  # (H,) or None
) -> Tensor:
    """Attention (R, H, 1, D) of one token a row: over its prompt, and over its own keys."""
    prompt_k, prompt_v, own_k, own_v = seen
    rows, span = len(q), prompt_k.shape[2]
    mine = q.reshape(rows * heads.keys, -1, heads.width)  # (R * K, Q, D)
    prompt = table.stand(_scaled(table.sit(mine, heads.keys), prompt_k, heads.scale))
    own = _scaled(mine, own_k, heads.scale)  # (R * K, Q, N)
    scores = torch.cat([prompt, own], dim=2).float()  # (R * K, Q, S + N)
    if heads.softcap:
        scores = heads.softcap * torch.tanh(scores / heads.softcap)
    scores.view(rows, heads.keys, -1, scores.shape[2]).add_(bias)
    if sinks is not None:
        sink = sinks.float().view(1, heads.keys, -1, 1).expand(rows, -1, -1, 1)
        sink = F.pad(sink.flatten(0, 1), (0, STEP - 1), value=float("-inf"))
        scores = torch.cat([scores, sink], dim=2)
    shares = scores.softmax(dim=2).to(q.dtype)
    sizes = (span, own_v.shape[1], shares.shape[2] - span - own_v.shape[1])
    over_prompt, over_own, _ = shares.split_with_sizes(sizes, 2)
    seated = table.sit(over_prompt, heads.keys)  # (P * K, G * Q, S)
    mixed = table.stand(torch.bmm(seated, prompt_v))  # (R * K, Q, D)
    mixed = mixed.baddbmm(over_own, own_v)
    return mixed.view(rows, heads.queries, 1, heads.width)


def _scaled(q: Tensor, k: Tensor, scale: float) -> Tensor:
    scores = q.new_empty(q.shape[0], q.shape[1], k.shape[2])
    return scores.baddbmm_(q, k, beta=0, alpha=scale)
