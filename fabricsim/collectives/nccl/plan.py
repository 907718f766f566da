"""From NCCL's choice to what the engine runs: algorithm, channels, chunk, step times and line of the protocol."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

from fabricsim.collectives.choice import (
    FIFO_STEPS,
    LL,
    LL128,
    SIMPLE,
    Choice,
    Choose,
    from_settings,
    merged,
    nics_of,
    takes_all_links,
)
from fabricsim.collectives.nccl import chunks, cost
from fabricsim.collectives.nccl.choice import Pick, pick
from fabricsim.collectives.nccl.gpus import counted_nvlink, nvlinks
from fabricsim.collectives.nccl.graph import GroupShape, describe
from fabricsim.collectives.nccl.load import slot_rate
from fabricsim.collectives.nccl.trees import one_after_the_other, splits
from fabricsim.collectives.nccl.tuning import ALGORITHMS as NAMES
from fabricsim.collectives.nccl.tuning import PAYLOAD, PROTOCOLS, Algorithm, Link, Protocol, tuning
from fabricsim.scenario.collectives import PAIRED, is_described
from fabricsim.scenario.scenario import Scenario
from fabricsim.scenario.transport import NcclProtocol
from fabricsim.units import PS_PER_S, PS_PER_US

APART = 2.14
"""us of a network hop in NCCL's tables that the engine models apart: adapter latency and posting (1 us each), one EDR
switch (90 ns) and two cables of 5 m (50 ns)."""
_FINEST = 64  # denominator of the share: lines stay short
_ENGINE: Mapping[Algorithm, str] = {name: name.replace("-", "_") for name in NAMES}
"""The engine's name of each algorithm of NCCL."""
_NVLS_MESSAGES = 4
"""Messages of a call to and from the NVSwitch, one after the other; NCCL's table has their latency as one."""
_HOPPER_STEP = 2_500_000
"""ps of a ring's message on the GPU that NCCL's table of NVLS is of, an H100; other GPUs are in proportion."""
_P2P_LL_THRESHOLD, _P2P_LL_SINCE = 2**14, (2, 14)
"""Bytes up to which a send goes by LL, and the version since when: NCCL_P2P_LL_THRESHOLD, src/enqueue.cc."""
_POLL = 24e-9 / 12 / 64
"""s in which a proxy looks at a byte of LL: it reads each line to see the flag of the GPU (``sendProxyProgress``,
src/transport/net.cc) out of the last-level cache, where PCIe has put it: 77 cycles on Skylake-SP for 64 bytes, some
24 ns (anandtech.com/show/11550). No read waits for another, and a core has 12 fill buffers (Intel's optimisation
reference manual, table of Skylake's caches). T: of one generation of CPUs."""
_BY_LINK = "2.8"
"""First version whose table has the hops of rings over several hosts by link. Before it each cost NCCL the mean of
those within hosts and between them (``hops_by_link``), by which it chose: too little for one between hosts."""
_ONE_AFTER_THE_OTHER = (2, 8)
"""Version before which a tree first reduces all and then broadcasts, but for LL128.

``ncclAllReduceTreeKernel``, src/collectives/device/all_reduce.h. Its graph splits a host between two GPUs, too."""
_NVLINK_STEP = 4
"""NCCL_P2P_NVL_CHUNKSIZE by NCCL_P2P_NET_CHUNKSIZE, which is also that over PCIe: 512 and 128 KiB, src/init.cc."""
_MANY = 4  # channels up to which each is simulated
_SOCKETS = ("tcp", "ipoib")
_LINES: Mapping[Protocol, tuple[int, int]] = {"ll": LL, "ll128": LL128, "simple": SIMPLE}
"""Of messages whose times were measured: NCCL's estimate of what else they lose would count that twice."""


class NcclPlan:
    """What calls run with on a cluster, by NCCL's cost model.

    `scenario`: cluster, transport and settings; ``collectives.nccl`` is set.
    Raises InputError if the version has no cost model, or the generation of the GPU is not known.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._cluster = scenario.cluster.model_copy(update={"nic": scenario.nic})
        self._settings = scenario.collectives
        self._tuning = tuning(scenario.collectives.nccl or "")
        self._hops = self._tuning if self._tuning.hops_by_link else tuning(_BY_LINK)
        self._network = scenario.link_rate / 1e9
        gpu = scenario.cluster.gpu
        self._gpu = gpu
        self._copy_rate = gpu.nccl_copy_rate or gpu.memory_rate * gpu.memory_efficiency / 2  # read and written
        self._measured = scenario.transport.nccl
        self._overhead = scenario.transport.send_overhead
        self._round_trip = 2 * scenario.transport.latency
        self._sockets = scenario.transport.kind in _SOCKETS
        self._direct = scenario.cluster.gpudirect and not self._sockets
        self._packets = scenario.engine != "flow"
        self._meshed = scenario.cluster.is_meshed
        self._plain = from_settings(scenario.collectives, scenario.cluster)
        self._group = cache(self._describe)
        self._choice = cache(self._choose)
        self.group((0, 1)[: scenario.cluster.ranks])  # errors come before the run

    def group(self, ranks: tuple[int, ...]) -> GroupShape:
        """Describe a group of ranks: all of one size on as many hosts are alike."""
        return self._group(len(ranks), self._hosts(ranks))

    def _hosts(self, ranks: tuple[int, ...]) -> int:
        return len({rank // self._cluster.gpus_per_host for rank in ranks})

    def _describe(self, ranks: int, hosts: int) -> GroupShape:
        adapter = self._settings.adapter_latency / PS_PER_US
        found = describe(self._cluster, ranks, hosts, network=self._network, tuning=self._tuning, adapter=adapter)
        most, least = self._settings.max_channels, self._settings.min_channels
        channels = found.channels if most is None else min(found.channels, most)
        return replace(found, channels=channels if least is None else max(channels, least))

    def pick(self, collective: str, ranks: tuple[int, ...], size: int) -> Pick:
        """Take NCCL's algorithm and protocol for a call, among those that the settings allow."""
        return self._pick(collective, self.group(ranks), size)

    def _pick(self, collective: str, group: GroupShape, size: int) -> Pick:
        algorithm = self._settings.wanted("algorithm", collective)
        protocol = self._settings.wanted("protocol", collective)
        return pick(
            collective,
            size,
            group,
            algorithms=[ours for ours, engine in _ENGINE.items() if algorithm is None or algorithm == engine],
            protocols=() if protocol is None else (protocol,),
        )

    def unavailable(self, collective: str, ranks: tuple[int, ...]) -> str | None:
        """Name the algorithm of NCCL that the settings give a collective and that it does not have for these ranks."""
        named = self._settings.wanted("algorithm", collective)
        if named not in _ENGINE.values() or _ENGINE[self.pick(collective, ranks, 1).algorithm] == named:
            return None
        return named

    def __call__(self, collective: str, ranks: tuple[int, ...], size: int) -> Choice:
        """Choose for a call of `size` bytes; see `fabricsim.collectives.choice.Choose`."""
        return self._choice(collective, len(ranks), self._hosts(ranks), size)

    def _choose(self, collective: str, ranks: int, hosts: int, size: int) -> Choice:
        named = self._settings.wanted("algorithm", collective)
        foreign = named is not None and named not in _ENGINE.values()
        group = self._group(ranks, hosts)
        if ranks == 1 or collective in PAIRED or foreign:
            return self._unchosen(collective, group, size)
        found = self._pick(collective, group, size)
        simulated, chunk = self._channels(found, group), chunks.chunk(collective, found, size, group)
        measured = self._measured_protocol(found.protocol, group)
        merged = found.channels / simulated
        alone = found.algorithm == "tree" and found.channels == 1
        if found.algorithm in ("tree", "nvls-tree") and not alone:
            merged /= 2  # half of the channels go by each tree, and one of the engine's by both
        line = _LINES[found.protocol] if measured else self._line(collective, found, size, group)
        late = self._stored(found, simulated, line, group)
        return Choice(
            algorithm=self._named(found),
            channels=simulated,
            chunk=max(1, round(chunk * max(1.0, merged))),
            network_step=0 if measured else self._network_step(collective, found, size, chunk, group),
            intra_host_step=self._step(group.within, found.algorithm, found.protocol, group),
            line=line,
            lines_within=found.algorithm == "nvls-tree",
            stripes=self._stripes(found, group),
            by_links=self._meshed and takes_all_links(self._named(found)),
            window=FIFO_STEPS // chunks.steps(collective, found),
            start=self._start(found.algorithm, found.protocol, group),
            latency=_latency(measured, _ENGINE[found.algorithm]) if measured else None,
            byte_latency=self._byte_latency(measured, found, group) / merged if measured else late,
            posts=self._posts(found, simulated, group),
            copy_rate=self._copy_rate if found.algorithm == "ring" else 0.0,
        )

    def _unchosen(self, collective: str, group: GroupShape, size: int) -> Choice:
        """Take protocol Simple for sends between two ranks, or LL for small ones."""
        plain = self._plain(collective, tuple(range(group.ranks)), size)
        sent = size // group.ranks if collective == "all_to_all" else size
        own = is_described(plain.algorithm)
        small = collective in PAIRED and sent <= _P2P_LL_THRESHOLD and self._tuning.version >= _P2P_LL_SINCE
        if small and not own:  # files of the user say their protocol
            return self._small_sends(plain, group)
        measured = self._measured_protocol("simple", group)
        return Choice(
            algorithm=plain.algorithm,
            channels=plain.channels,
            chunk=self._send_chunk(plain.chunk, group, sent) if collective in PAIRED and not own else plain.chunk,
            window=plain.window,
            network_step=0 if measured else self._step("network", "ring", "simple", group),
            intra_host_step=self._step(group.within, "ring", "simple", group),
            start=self._start("ring", "simple", group) + self._own_part(collective, group, size),
            latency=_latency(measured, plain.algorithm) if measured else None,
            byte_latency=measured.byte_latency * PS_PER_S if measured else 0.0,
            line=plain.line,
            by_links=plain.by_links,
            reduction_rate=plain.reduction_rate if own else 0.0,
        )

    def _send_chunk(self, step: int, group: GroupShape, size: int) -> int:
        """Count what all channels between two ranks send at once; one stands for all of them."""
        links = nvlinks(self._gpu) if group.hosts == 1 and group.within == "nvlink" else 0
        if links and (mesh := self._cluster.mesh) is not None:
            links = min(filter(None, mesh.rows[0]))
        step *= _NVLINK_STEP if links else 1
        return step * chunks.send_channels(step, size, 2 * max(1, links), group)

    def _small_sends(self, plain: Choice, group: GroupShape) -> Choice:
        """Send in lines of LL, half of whose bytes are flags."""
        measured = self._measured_protocol("ll", group)
        return Choice(
            algorithm=plain.algorithm,
            channels=plain.channels,
            chunk=plain.chunk,
            window=FIFO_STEPS,
            network_step=0 if measured else self._step("network", "ring", "ll", group),
            intra_host_step=self._step(group.within, "ring", "ll", group),
            line=LL,
            start=self._start("ring", "ll", group),
            latency=measured.latency if measured else None,
            byte_latency=measured.byte_latency * PS_PER_S if measured else 0.0,
        )

    def network_step(self, protocol: Protocol) -> int:
        """Look up the fixed time of a message between hosts beside the transport's, ps: the longer of tree and ring."""
        group = self.group(tuple(range(self._cluster.ranks)))
        return max(self._step("network", algorithm, protocol, group) for algorithm in ("tree", "ring"))

    def _measured_protocol(self, protocol: Protocol, group: GroupShape) -> NcclProtocol | None:
        """Find what a message of a protocol costs between hosts on this transport where that was measured."""
        return getattr(self._measured, protocol, None) if group.hosts > 1 else None

    def _byte_latency(self, measured: NcclProtocol, found: Pick, group: GroupShape) -> float:
        """Work out the latency per byte of a channel, ps.

        Lines of LL lie in the memory of a host, where a GPU polls them over PCIe and its proxy on one thread. The
        channels of a NIC share both, so bytes of one wait for those of the others: NCCL bounds the rate of LL for all
        channels, and others for each (``llMaxBws`` and ``perChMax...``, src/graph/tuning.cc). Trees meet anew at each
        host; in rings, if a message that has waited once follows the other at a distance, channels do not. Over
        sockets nearly all of it is spent in the kernel and the adapter, for each connection apart: MPI's messages,
        which have no lines, take as long there.
        """
        waiting = found.protocol == "ll" and found.algorithm == "tree" and not self._sockets
        together = max(1.0, found.channels / self._stripes(found, group)) if waiting else 1.0
        return measured.byte_latency * PS_PER_S * together

    def _named(self, found: Pick) -> str:
        """Give the engine's name of an algorithm; old trees have two GPUs at the NIC if no NVLink joins them."""
        if found.algorithm != "tree":
            return _ENGINE[found.algorithm]
        split = self._tuning.version < _ONE_AFTER_THE_OTHER and splits(self._cluster)
        return ("split_" if split else "") + ("single_tree" if found.channels == 1 else "tree")

    def _network_step(self, collective: str, found: Pick, size: int, chunk: int, group: GroupShape) -> int:
        """Look up the fixed time of a message between hosts, ps, with a round trip if the transport asks for it."""
        above = self._measured.handshake_above if self._measured is not None else 0
        shards = group.ranks if found.algorithm == "ring" and collective not in cost.CHAINS else 1
        asks = 0 < above < min(size / found.channels / shards, chunk) / PAYLOAD[found.protocol]
        return self._step("network", found.algorithm, found.protocol, group) + (self._round_trip if asks else 0)

    def _stored(self, found: Pick, simulated: int, line: tuple[int, int], group: GroupShape) -> float:
        """Work out for how long a byte lies in host memory until all of its message is there, ps.

        A proxy looks at all lines of LL, in turn for the channels that it serves; two trees send at different times.
        Without GPUDirect a tree's message by Simple goes to host memory before it leaves and is read after all of it
        has come. A ring's goes in two slices, which overlap as much as they wait.
        """
        lines = found.protocol == "ll"
        staged = found.protocol == "simple" and found.algorithm == "tree" and not self._direct
        if group.hosts == 1 or not (lines or staged):
            return 0.0
        each = _POLL / PAYLOAD["ll"] if lines else 2 / (slot_rate(self._cluster.gpu_pcie) * 1e9)
        data = each * line[0] / line[1]  # the engine's bytes are those of lines
        return data * PS_PER_S * simulated / self._stripes(found, group)

    def _own_part(self, collective: str, group: GroupShape, size: int) -> int:
        """Count the time to copy what a rank of an all-to-all keeps, by the thread blocks that send, ps.

        Between hosts it is over long before the other sends, beside which it runs as a send of its own. Inside a host,
        if it takes the warps from those, it is taken to come first: 2 A100 measured agree, 2 H100 are 22 % faster.
        """
        inside = collective == "all_to_all" and group.hosts == 1
        return round(size / group.ranks / self._copy_rate * PS_PER_S) if inside else 0

    def _channels(self, found: Pick, group: GroupShape) -> int:
        """Channels to simulate: one stands for many that share every resource and run in step.

        Packets do not go in parts as a flow does, so there each NIC has a channel.
        """
        one = group.within == "nvlink" or found.algorithm != "ring" or found.channels > _MANY
        return max(self._stripes(found, group) if self._packets else 1, 1 if one else found.channels)

    def _posts(self, found: Pick, simulated: int, group: GroupShape) -> int:
        """Count the messages that the proxy of a GPU, one thread, posts for each that is simulated.

        It serves all channels that leave the host there: each of a ring or tree at one GPU, of NVLS at all.
        """
        apart = 1 if found.algorithm == "nvls-tree" else max(simulated, self._stripes(found, group))
        return -(-found.channels // apart)

    def _stripes(self, found: Pick, group: GroupShape) -> int:
        """NICs of a host that the channels go by in turn; the heads of NVLS have one each."""
        alone = found.algorithm not in ("ring", "tree")
        return 1 if alone else min(group.channels, nics_of(self._cluster, group.ranks, group.hosts))

    def _line(self, collective: str, found: Pick, size: int, group: GroupShape) -> tuple[int, int]:
        """Payload and bytes of a line that leave the data the share of the links that NCCL reckons with."""
        share = cost.share(collective, found.algorithm, found.protocol, size, group)
        if found.algorithm == "tree" and found.channels == 1 and found.protocol != "ll128":
            share /= one_after_the_other(group.hosts) if group.tuning.version < _ONE_AFTER_THE_OTHER else 1.0
        if found.algorithm == "nvls-tree":
            heads = group.ranks // group.hosts
            share = min(share, cost.nvls_tree_bound(group) / counted_nvlink(self._gpu) * (heads + 1) / heads)
        reached = Fraction(share).limit_denominator(_FINEST)
        return reached.numerator, reached.denominator

    def _start(self, algorithm: Algorithm, protocol: Protocol, group: GroupShape) -> int:
        """Look up the time until a kernel works, ps; trees by Simple have none of their own before 2.23."""
        of_gpu = {"simple": self._gpu.nccl_start, "ll": self._gpu.nccl_ll_start}.get(protocol)
        if algorithm in ("ring", "tree") and group.within == "nvlink" and of_gpu is not None:
            return of_gpu
        base = self._tuning.base[algorithm][PROTOCOLS.index(protocol)]
        if algorithm == "tree" and protocol == "simple" and self._tuning.version < (2, 23):
            base = self._tuning.base["ring"][PROTOCOLS.index("simple")]
        return round(base * PS_PER_US)

    def _step(self, link: Link, algorithm: Algorithm, protocol: Protocol, group: GroupShape) -> int:
        """Look up the fixed time of a message, ps.

        A tree's Simple hop of versions before 2.23 holds the time of a chunk of 256 KiB (tuning.cc says so), which the
        engine counts itself; the ring's stands in for it.
        """
        constants = self._tuning if group.hosts == 1 else self._hops
        of_gpu = {"simple": self._gpu.nccl_step, "ll": self._gpu.nccl_ll_step}.get(protocol)
        if link == "nvlink" and algorithm in ("ring", "tree") and of_gpu is not None:
            return of_gpu
        if algorithm == "tree" and protocol == "simple" and constants.version < (2, 23):
            algorithm = "ring"
        hop = constants.hop[link].get(algorithm, (0.0, 0.0, 0.0))[PROTOCOLS.index(protocol)]
        if link == "network":
            if self._measured is not None and self._measured.step is not None:
                return self._measured.step
            # src/transport/net_socket.cc: the size goes ahead on a connection of its own, in calls of its own
            return round(max(0.0, hop - APART) * PS_PER_US) + (self._overhead if self._sockets else 0)
        if algorithm in ("nvls", "nvls-tree"):
            hop /= _NVLS_MESSAGES
            if self._gpu.nccl_step is not None:
                hop *= self._gpu.nccl_step / _HOPPER_STEP
        factor = constants.ll_hop if protocol == "ll" and group.hosts > 1 else 1.0
        return round(hop * factor * PS_PER_US)


def _latency(measured: NcclProtocol, algorithm: str) -> int:
    ring = measured.ring_latency
    return ring if ring is not None and algorithm == "ring" else measured.latency


def chooser(scenario: Scenario) -> Choose:
    """Choose by NCCL's cost model where ``collectives.nccl`` is set, else what the settings say."""
    plain = scenario.collectives.nccl is None
    choose = from_settings(scenario.collectives, scenario.cluster) if plain else NcclPlan(scenario)
    return merged(choose) if scenario.engine == "flow" else choose
