"""How collectives are cut into messages, and what their steps cost."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from fabricsim import units
from fabricsim.errors import InputError
from fabricsim.extensions import Registry, require_functions
from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Bytes, Duration, Rate

DEFAULTS = {
    "all_reduce": "ring",
    "reduce_scatter": "ring",
    "all_gather": "ring",
    "broadcast": "ring",
    "reduce": "ring",
    "all_to_all": "direct",
    "send_recv": "direct",
    "ring_exchange": "ring",
}
"""All collectives, and the algorithm that each takes if nothing else is asked for."""


@dataclass(frozen=True, eq=False)
class Algorithm:
    """An algorithm of collectives.

    Attributes
    ----------
    name
        As ``collectives.algorithm`` has it; that of a user's file is its path.
    of
        By collective, what makes its template of a number of members (`fabricsim.collectives.base.Template`); of their
        `fabricsim.collectives.base.Group` if it is `by_host`; or what `fabricsim.collectives.by_rank` gives.
    by_host
        Whether it looks at which members are on one host.
    switches
        Which switches reduce: none, that of a ``"host"``, or those of the ``"network"``.
    ahead
        Whether sends of `PAIRED` collectives do not wait for what is received, as those of NCCL.
    striped
        Whether its channels take the GPUs of a host in different orders, so that they leave it by different NICs, and
        use all NVLinks between its GPUs if no switch joins these.
    turned
        Whether they do so inside hosts alone.
    """

    name: str
    of: Mapping[str, Any]
    by_host: bool = False
    switches: Literal["none", "host", "network"] = "none"
    ahead: bool = False
    striped: bool = False
    turned: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no template; that of `by_rank` has a function ``steps``."""
        makes = {collective: getattr(make, "steps", make) for collective, make in self.of.items()}
        require_functions(f"algorithm {self.name!r}", **makes)
        if self.switches not in {"none", "host", "network"}:
            raise InputError(f"algorithm {self.name!r}: switches is {self.switches!r}; write none, host or network")


ALGORITHMS: Registry[Algorithm] = Registry("collectives", "fabricsim.collectives", "ALGORITHM", Algorithm)
"""All algorithms."""


def algorithms(collective: str) -> list[str]:
    """Names of the algorithms of a collective, its default first."""
    default = DEFAULTS[collective]
    return [
        default,
        *sorted(name for name, each in ALGORITHMS.all().items() if collective in each.of and name != default),
    ]


def has(collective: str, algorithm: str) -> bool:
    """Whether a collective has an algorithm of that name."""
    found = ALGORITHMS.find(algorithm)
    return found is not None and collective in found.of


PROTOCOLS = ("ll", "ll128", "simple")
"""Protocols of NCCL, which differ in latency and in what they add to the data."""

PAIRED = ("all_to_all", "send_recv", "ring_exchange")
"""Collectives that NCCL puts together from sends between two ranks: they have ``send_chunk``, and one channel."""

_CHAKRA = re.compile(r"(.+\.\*\.et)(?:\s*@(.*))?", re.DOTALL)


class ChakraFiles(NamedTuple):
    """Files of Chakra that describe an algorithm, one per rank.

    `pattern`: their names, with ``*`` for the rank.
    `size`: bytes of the collective that they were written for; None if the files are to say it.
    """

    pattern: str
    size: int | None


def is_described(name: str) -> bool:
    """Whether the name of an algorithm is that of files: XML of MSCCL, or Chakra's as in ``"mine.*.et@1MiB"``."""
    return name.endswith(".xml") or _CHAKRA.fullmatch(name) is not None


def chakra_files(name: str) -> ChakraFiles | None:
    """Read the name of an algorithm in Chakra files; None if it is another.

    Raises ValueError if what follows the ``@`` is no size.
    """
    found = _CHAKRA.fullmatch(name)
    if found is None or name.endswith(".xml"):
        return None
    size = None if found[2] is None else int(units.parse(found[2].strip(), units.BYTES))
    if size == 0:
        raise ValueError(f"{found[2]!r} is no size of a collective; write that of the whole buffer")
    return ChakraFiles(found[1], size)


def assumed(algorithm: object, called: Container[str]) -> list[str]:
    """Say what nothing in a user's Chakra files can be checked for, of the collectives that are called.

    `algorithm`: as ``collectives.algorithm`` of a scenario.
    `called`: collectives of the run.
    """
    said = []
    for collective, name in algorithm.items() if isinstance(algorithm, dict) else ():
        files = chakra_files(name)
        if files is not None and collective in called:
            article = "an" if collective[0] in "aeiou" else "a"
            right = f"the messages of {files.pattern} carry the data of {article} {collective}"
            if files.size is not None:
                right += f" of {files.size} bytes"
            said.append(f"{right}: Chakra files do not say which; checked are sizes, counterparts, order and reach")
    return said


class LowLatency(Spec):
    """Protocol LL of a library that has no cost model here.

    Calls of up to ``up_to`` bytes send lines of which half are flags; the other keys are those of `Collectives`.
    """

    up_to: Bytes
    start: Duration = 0
    network_step: Duration = 0
    intra_host_step: Duration = 0


class Collectives(Spec):
    """How collectives are cut and what each of their steps costs besides the wire.

    With ``nccl``, a version such as ``"2.18"``, algorithm, protocol, channels, chunks and step times of each call
    are those that NCCL's cost model of that version takes; ``algorithm`` and ``protocol`` (``"ll"``, ``"ll128"``,
    ``"simple"``) then restrict it as NCCL_ALGO and NCCL_PROTO do, and ``min_channels`` and ``max_channels`` as
    NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS; ``adapter_latency`` is what the network plugin tells NCCL of its
    latency. Without it the keys below hold for all calls.

    ``algorithm`` is one name for all collectives that have it, or a table from collective to name;
    others take their first. ``chunk`` is the most that one channel sends in one step, ``send_chunk`` the most
    that a send between two ranks hands over at once; a connection's FIFO holds two of the former, eight of the latter.
    ``network_step``
    and ``intra_host_step`` are fixed times per step (flags, fences, proxy), after NCCL's tuning tables, and ``start``
    is that of a call. Small calls go by ``ll`` if that is there.
    ``reduction_rate`` is what one channel reduces per second of what it has received; left out, that takes no time
    of its own, as where the reduction of one slice hides behind the arrival of the next.
    A process with ``process_gpus`` GPUs launches their kernels one after the other, each in ``launch``: calls that
    follow each other, as in nccl-tests, take no less than all of that.
    """

    nccl: str | None = None
    algorithm: str | dict[str, str] = "auto"
    protocol: str | dict[str, str] = "auto"
    channels: Annotated[int, Field(ge=1, le=64)] = 2
    chunk: Bytes = 2 * 2**20
    send_chunk: Bytes = 2**17
    start: Duration = 0
    network_step: Duration = 0
    intra_host_step: Duration = 0
    ll: LowLatency | None = None
    reduction_rate: Rate | None = None
    adapter_latency: Duration = 0
    min_channels: Annotated[int, Field(ge=1, le=64)] | None = None
    max_channels: Annotated[int, Field(ge=1, le=64)] | None = None
    process_gpus: Annotated[int, Field(ge=1, le=64)] = 1
    launch: Duration = 0

    def wanted(self, key: Literal["algorithm", "protocol"], collective: str) -> str | None:
        """Name that the scenario gives for a collective; None if the choice is free."""
        named = self.algorithm if key == "algorithm" else self.protocol
        name = named.get(collective, "auto") if isinstance(named, dict) else named
        if key == "protocol":
            return name if name in PROTOCOLS else None
        return name if has(collective, name) or (isinstance(named, dict) and is_described(name)) else None

    @property
    def reduces_in_network(self) -> bool:
        """Whether a collective takes an algorithm for which switches of the network add up."""
        named = [self.algorithm] if isinstance(self.algorithm, str) else self.algorithm.values()
        return any(found.switches == "network" for name in named if (found := ALGORITHMS.find(name)) is not None)

    def algorithm_of(self, collective: str) -> str:
        """Name of the algorithm that a collective takes."""
        if isinstance(self.algorithm, dict):
            return self.algorithm.get(collective, DEFAULTS[collective])
        return self.algorithm if has(collective, self.algorithm) else DEFAULTS[collective]
