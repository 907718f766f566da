"""Recursive halving and doubling: pairs at distances of powers of two exchange halves, quarters, ...

R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH",
IJHPCA 19 (2005); R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004. With ``a``
seconds per message and ``B`` bytes/s, on ``n = 2^k`` ranks::

    all-reduce, halving and doubling     2 k a + 2 (n - 1) / n S / B
    all-reduce, doubling alone             k (a + S / B)
    reduce-scatter, all-gather             k a + (n - 1) / n S / B

If ``n`` is between powers of two, ``r = n - 2^k`` ranks hand their buffers to neighbours before and get the result
afterwards: ``2 (a + S / B)`` more. In Rabenseifner's way each of such a pair first reduces one half for both, which
takes a message more and halves the reduction: ``3 a + 2 S / B`` more. This is for ranks in step. The
ranks without a neighbour begin at once, so that their first message is there early, or shares the receiver's link
with those of another step: short calls take up to ``a`` less, long ones longer.
"""

from collections.abc import Callable, Sequence

from fabricsim.collectives.base import Template
from fabricsim.collectives.builder import Builder
from fabricsim.errors import SimulationError
from fabricsim.scenario.collectives import Algorithm


def halving_doubling(members: int) -> Template:
    """All-reduce: recursive halving, then recursive doubling; spare ranks hand over their whole buffers."""
    return _halve_and_double(Builder(members, shards=_power_below(members)), _hand_over)


def rabenseifner(members: int) -> Template:
    """All-reduce: as `halving_doubling`, spare ranks reducing half of the buffer for their neighbours."""
    return _halve_and_double(Builder(members, shards=max(_power_below(members), 2)), _reduce_half)


def recursive_doubling(members: int) -> Template:
    """All-reduce: each pair exchanges whole buffers; for short ones."""
    core = _power_below(members)
    builder = Builder(members, shards=1)
    ranks = _fold(builder, core, _hand_over)
    distance = 1
    while distance < core:
        for place, rank in enumerate(ranks):
            _exchange(builder, rank, ranks[place ^ distance], (0, 1), (0, 1), reduce=True)
        distance *= 2
    _give_back(builder, core)
    return builder.build()


def reduce_scatter(members: int) -> Template:
    """Recursive halving; powers of two only."""
    builder = Builder(members, shards=_power(members, "reduce_scatter"))
    _halve(builder, range(members))
    return builder.build()


def all_gather(members: int) -> Template:
    """Recursive doubling; powers of two only."""
    builder = Builder(members, shards=_power(members, "all_gather"))
    _double(builder, range(members))
    return builder.build()


def _power_below(members: int) -> int:
    """Largest power of two that is at most `members`."""
    return 1 << (members.bit_length() - 1)


def _power(members: int, collective: str) -> int:
    if members != _power_below(members):
        way_out = 'choose "ring", "bruck" or "pat"' if collective == "all_gather" else 'choose "ring" or "pat"'
        msg = f"halving and doubling of {collective} needs a power of two of ranks, not {members}: {way_out}"
        raise SimulationError(msg)
    return members


def _halve_and_double(builder: Builder, pair: Callable[[Builder, int, int], None]) -> Template:
    core = _power_below(builder.members)
    ranks = _fold(builder, core, pair)
    _halve(builder, ranks)
    _double(builder, ranks)
    _give_back(builder, core)
    return builder.build()


def _fold(builder: Builder, core: int, pair: Callable[[Builder, int, int], None]) -> list[int]:
    """Let the first ranks work in pairs if there are more than `core`; returns those that go on."""
    spare = builder.members - core
    for number in range(spare):
        pair(builder, 2 * number, 2 * number + 1)
    return [*range(1, 2 * spare, 2), *range(2 * spare, builder.members)]


def _hand_over(builder: Builder, even: int, odd: int) -> None:
    builder.send(even, odd, 0, builder.shards)
    builder.receive(odd, even, 0, builder.shards, reduce=True)


def _reduce_half(builder: Builder, even: int, odd: int) -> None:
    half = builder.shards // 2
    builder.send(even, odd, half, half)
    builder.send(odd, even, 0, half)
    builder.receive(even, odd, 0, half, reduce=True)
    builder.receive(odd, even, half, half, reduce=True)
    builder.send(even, odd, 0, half)
    builder.receive(odd, even, 0, half)


def _give_back(builder: Builder, core: int) -> None:
    for number in range(builder.members - core):
        builder.send(2 * number + 1, 2 * number, 0, builder.shards)
        builder.receive(2 * number, 2 * number + 1, 0, builder.shards)


def _exchange(  # noqa: PLR0913  two ends and what each has
    builder: Builder, rank: int, peer: int, give: tuple[int, int], take: tuple[int, int], *, reduce: bool
) -> None:
    builder.send(rank, peer, *give)
    builder.receive(rank, peer, *take, reduce=reduce)


def _halve(builder: Builder, ranks: Sequence[int]) -> None:
    """Each keeps the half in which its own shards lie, and gives the other to the peer."""
    distance, unit = len(ranks) // 2, builder.shards // len(ranks)
    while distance:
        for place, rank in enumerate(ranks):
            mine, other = _span(place, distance, unit), _span(place ^ distance, distance, unit)
            _exchange(builder, rank, ranks[place ^ distance], other, mine, reduce=True)
        distance //= 2


def _double(builder: Builder, ranks: Sequence[int]) -> None:
    distance, unit = 1, builder.shards // len(ranks)
    while distance < len(ranks):
        for place, rank in enumerate(ranks):
            mine, other = _span(place, distance, unit), _span(place ^ distance, distance, unit)
            _exchange(builder, rank, ranks[place ^ distance], mine, other, reduce=False)
        distance *= 2


def _span(place: int, distance: int, unit: int) -> tuple[int, int]:
    """First shard and number of them that a place has when its peer is at `distance`."""
    return place // distance * distance * unit, distance * unit


ALGORITHM = (
    Algorithm("halving_doubling", {"all_reduce": halving_doubling}),
    Algorithm("rabenseifner", {"all_reduce": rabenseifner}),
    Algorithm("recursive_doubling", {"all_reduce": recursive_doubling, "all_gather": all_gather}),
    Algorithm("recursive_halving", {"reduce_scatter": reduce_scatter}),
)
