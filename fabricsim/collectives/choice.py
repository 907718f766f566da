"""What a collective call runs with: algorithm, channels, chunk and the costs of its protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from fabricsim.errors import InputError
from fabricsim.scenario.collectives import ALGORITHMS, PAIRED, Algorithm, Collectives, is_described

if TYPE_CHECKING:
    from fabricsim.scenario.cluster import Cluster

SIMPLE = (1, 1)
LL = (8, 16)
LL128 = (120, 128)
"""Payload and bytes of a line of NCCL's protocols: 8 of 16 bytes are data in LL, 120 of 128 in LL128
(src/include/device.h and src/device/prims_ll128.h of github.com/NVIDIA/nccl)."""


@dataclass(frozen=True)
class Choice:
    """How one call is carried out.

    `algorithm`: a name that `fabricsim.collectives.COLLECTIVES` has for the collective.
    `channels`: parts of the buffer that go side by side.
    `chunk`: most bytes of a shard in one round of one channel, at least 1.
    `network_step`, `intra_host_step`: fixed time of each message that leaves the host, or does not, ps.
    `line`: payload and bytes of the protocol's line, of which whole ones are sent: ``SIMPLE``, ``LL``, ``LL128``.
    `lines_within`: whether messages that leave the host have no lines: those of NVLS stand for what NVLink loses.
    `stripes`: NICs of a host by which the channels of a ring or a tree leave it in turn; if there are fewer channels,
        the messages of each go in equal parts by several.
    `by_links`: whether messages inside a host go over all NVLinks between its GPUs of the group, not only over those
        between sender and receiver.
    `window`: messages that a connection's FIFO holds.
    `start`: time until the kernel works, ps.
    `latency`: one way between hosts, in the place of the transport's latency, its send overhead and interrupt
        moderation, ps; None leaves them.
    `byte_latency`: more latency for each byte of such a message, ps.
    `posts`: how often the send overhead comes before a message between hosts: a proxy posts for all of its channels.
    `copy_rate`: bytes/s at which all channels together copy what they have received and do not pass on; 0 if that takes
        no time.
    `reduction_rate`: bytes/s at which a channel reduces what it has received; 0 if that takes no time.
    `ticking`: whether the flow engine brings together what begins and leaves at nearly one instant.
    """

    algorithm: str
    channels: int
    chunk: int
    network_step: int = 0
    intra_host_step: int = 0
    line: tuple[int, int] = SIMPLE
    lines_within: bool = False
    stripes: int = 1
    by_links: bool = False
    window: int = 2
    start: int = 0
    latency: int | None = None
    byte_latency: float = 0.0
    posts: int = 1
    copy_rate: float = 0.0
    reduction_rate: float = 0.0
    ticking: bool = False

    @property
    def is_striped(self) -> bool:
        """Whether messages may go other ways than that of their sender and receiver."""
        return self.stripes > 1 or self.by_links

    @cached_property
    def wiring(self) -> Choice:
        """What calls share that differ in their chunk alone."""
        return replace(self, chunk=1)


FIFO_STEPS = 8
"""Slots of a connection's FIFO: NCCL_STEPS, ``src/include/device.h``."""
PROTOCOLS = {"Simple": SIMPLE, "LL": LL, "LL128": LL128}
"""Lines of NCCL's protocols by their names."""

Choose = Callable[[str, tuple[int, ...], int], Choice]
"""From collective, ranks and size (bytes) of a call to what it runs with."""


_MOST_MESSAGES = 2**13
"""Messages of one call each of which begins and ends at an instant of its own: 8 for each pair of 32 ranks."""


def merged(choose: Choose) -> Choose:
    """Let fewer and longer messages stand for those of a call that sends very many side by side, for flows.

    In an all-to-all a connection's next message follows the one before without a break, so that they are one flow, cut
    or not. What changes is that less is handed over before the end, and by ``byte_latency`` later, which is lessened in
    proportion. In other direct collectives each message is what it was, and only its instants are brought together.
    """

    def chosen(collective: str, ranks: tuple[int, ...], size: int) -> Choice:
        choice = choose(collective, ranks, size)
        pairs = len(ranks) * (len(ranks) - 1)
        if choice.algorithm != "direct" or collective == "send_recv":
            return choice
        block = -(-size // len(ranks))
        if pairs * -(-block // choice.chunk) <= _MOST_MESSAGES:
            return choice
        if collective != "all_to_all":
            return replace(choice, ticking=True)
        chunk = max(choice.chunk, -(-block // max(1, _MOST_MESSAGES // pairs)))
        late = choice.byte_latency * choice.chunk / chunk
        return replace(choice, chunk=chunk, byte_latency=late, ticking=True)

    return chosen


def nics_of(cluster: Cluster, ranks: int, hosts: int) -> int:
    """Count the NICs that the ranks of a group have on each of its hosts, 1 inside one."""
    return 1 if hosts == 1 else max(1, cluster.nics_per_host * ranks // hosts // cluster.gpus_per_host)


def takes_all_links(algorithm: str) -> bool:
    """Whether an algorithm uses all NVLinks that join the GPUs of a host, if no switch does."""
    declared = _declared(algorithm)
    return declared.striped or declared.turned


def from_settings(settings: Collectives, cluster: Cluster) -> Choose:
    """Choose what the scenario says, on a cluster whose hosts have so many GPUs and NICs."""
    meshed = cluster.is_meshed

    def choose(collective: str, ranks: tuple[int, ...], size: int) -> Choice:
        paired = collective in PAIRED
        algorithm = settings.algorithm_of(collective)
        if is_described(algorithm):
            return _described(settings, algorithm, collective, len(ranks))
        small = settings.ll if settings.ll is not None and size <= settings.ll.up_to else None
        times = small or settings
        hosts = len({rank // cluster.gpus_per_host for rank in ranks})
        stripes = nics_of(cluster, len(ranks), hosts) if _declared(algorithm).striped and not paired else 1
        return Choice(
            algorithm=algorithm,
            # Channels of one pair of ranks would share every resource of the pair.
            channels=1 if paired else settings.channels * stripes,
            chunk=_send_chunk(settings, algorithm) if paired else settings.chunk,
            network_step=times.network_step,
            intra_host_step=times.intra_host_step,
            line=LL if small else SIMPLE,
            stripes=stripes,
            by_links=meshed and takes_all_links(algorithm) and not paired,
            window=FIFO_STEPS if paired and _declared(algorithm).ahead else 2,
            start=times.start,
            reduction_rate=settings.reduction_rate or 0.0,
        )

    return choose


def _declared(algorithm: str) -> Algorithm:
    return ALGORITHMS.find(algorithm) or Algorithm(algorithm, {})


def _send_chunk(settings: Collectives, algorithm: str) -> int:
    """Take half of the FIFO where each message waits for another, as those of MPI's algorithms do."""
    return settings.send_chunk * (1 if _declared(algorithm).ahead else FIFO_STEPS // 2)


def _described(settings: Collectives, name: str, collective: str, members: int) -> Choice:
    """Choose what the files of an algorithm say, which has its channels among its messages."""
    choice = Choice(
        algorithm=name,
        channels=1,
        chunk=settings.chunk,
        network_step=settings.network_step,
        intra_host_step=settings.intra_host_step,
        reduction_rate=settings.reduction_rate or 0.0,
    )
    if name.endswith(".xml"):
        return replace(choice, line=_line(name))
    from fabricsim.collectives import chakra  # noqa: PLC0415  few scenarios name files

    found = chakra.read(name, collective, members)
    most = _send_chunk(settings, name) if collective in PAIRED else settings.chunk
    rate = choice.reduction_rate or found.reduction_rate
    return replace(choice, chunk=max(1, most // found.most), reduction_rate=rate)


def _line(path: str) -> tuple[int, int]:
    """Find the line of the protocol that a file of MSCCL names."""
    from fabricsim.collectives import msccl  # noqa: PLC0415  as in `_described`

    protocol = msccl.read(path).protocol
    if protocol not in PROTOCOLS:
        raise InputError(f"{path}: proto={protocol!r} is not known; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[protocol]
