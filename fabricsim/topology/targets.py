"""What names of cables, switches, NICs, hosts and GPUs stand for: wires, and endpoints that are gone with them."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from fabricsim.errors import SimulationError
from fabricsim.scenario.suggest import did_you_mean
from fabricsim.topology.platform import Platform
from fabricsim.topology.wires import matching


class FabricPart(NamedTuple):
    """A part of a fabric.

    `name`: as it was written.
    `wires`: numbers of the wires that are down with it; of a cable both directions.
    `endpoints`: ranks and host memories that are gone with it.
    """

    name: str
    wires: tuple[int, ...]
    endpoints: tuple[int, ...] = ()


def find(platform: Platform, name: str, kind: str | None = None) -> list[FabricPart]:
    """Find what a name or a pattern of names stands for.

    `platform`: that has it.
    `name`: such as ``"leaf0-spine1"``, ``"leaf0->spine1"``, ``"spine1"``, ``"host3"``, ``"host3/nic0"`` or ``"gpu7"``;
        ``*`` and ``?`` stand for any characters.
    `kind`: ``"link"``, ``"switch"``, ``"nic"``, ``"host"`` or ``"gpu"``; whichever has the name if it is left out.
    Returns: one for each switch, NIC, host, GPU or cable.
    Raises SimulationError if there is no such thing.
    """
    kinds = ("gpu", "host", "nic", "switch", "link") if kind is None else (kind,)
    for each in kinds:
        found = [*_KINDS[each](platform, name)]
        if found:
            return found
    raise SimulationError(f"there is no {kind or 'part of the fabric'} {name!r}; {_hint(platform, name, kind)}")


def _hint(platform: Platform, name: str, kind: str | None) -> str:
    """Say what is there in the place of a name: of another kind, or under a name that is alike."""
    if other := next((other for other, parts in _KINDS.items() if other != kind and any(parts(platform, name))), None):
        return f"it is a {other}: write {other} = {name!r}"
    if kind == "gpu" or (kind is None and name.startswith("gpu")):
        return f"GPUs are gpu0 to gpu{platform.cluster.ranks - 1}"
    if kind is None:
        known = [*platform.nodes, *map(_cable, platform.wires.names)]
        return did_you_mean(name, known, f"cables are called as {known[-1]}, nodes as {known[0]}")
    names = [part.name for part in _KINDS[kind](platform, "*")]
    return did_you_mean(name, names, f"their names are such as {names[0]}" if names else "there is none")


def in_both_directions(platform: Platform, part: FabricPart) -> FabricPart:
    """Add the other direction of each cable of a part.

    A cable has no single direction that is down: whoever hears nothing tells the other end, which then sends nothing
    either (link fault signalling, IEEE 802.3, 46.3.4 and 81.3.4).
    """
    return part._replace(wires=tuple(sorted({*part.wires, *platform.wires.reverse[list(part.wires)].tolist()})))


def _cable(wire: str) -> str:
    return wire.replace("->", "-")


def _gpus(platform: Platform, name: str) -> Iterator[FabricPart]:
    names = [f"gpu{rank}" for rank in range(platform.cluster.ranks)]
    return (FabricPart(names[rank], (), (rank,)) for rank in _numbers(names, name))


def _hosts(platform: Platform, name: str) -> Iterator[FabricPart]:
    names = [f"host{host}" for host in range(platform.hosts)]
    nics, gpus = platform.cluster.nics_per_host, platform.cluster.gpus_per_host
    for host in _numbers(names, name):
        wires = _wires_at(platform, _nodes_in(platform, range(host * nics, (host + 1) * nics)))
        yield FabricPart(names[host], wires, (*range(host * gpus, (host + 1) * gpus), platform.host_memory(host)))


def _nics(platform: Platform, name: str) -> Iterator[FabricPart]:
    per_host = platform.cluster.nics_per_host
    names = [f"host{nic // per_host}/nic{nic % per_host}" for nic in range(platform.hosts * per_host)]
    found = _numbers(names, name) or _numbers(platform.nodes[: len(names)], name)
    return (FabricPart(names[nic], _wires_at(platform, [nic])) for nic in found)


def _switches(platform: Platform, name: str) -> Iterator[FabricPart]:
    names = platform.nodes[platform.nics :]
    return (FabricPart(names[at], _wires_at(platform, [platform.nics + at])) for at in _numbers(names, name))


def _links(platform: Platform, name: str) -> Iterator[FabricPart]:
    """Find cables, or single directions if the name has an arrow; without a number all parallel ones."""
    names, reverse = platform.wires.names, platform.wires.reverse.tolist()
    found = matching(name, names)
    if "->" in name:
        return (FabricPart(names[wire], (wire,)) for wire in found)
    return (FabricPart(_cable(names[wire]), (wire, reverse[wire])) for wire in found if wire < reverse[wire])


_KINDS = {"gpu": _gpus, "host": _hosts, "nic": _nics, "switch": _switches, "link": _links}


def _numbers(names: Sequence[str], name: str) -> list[int]:
    return [number for number, each in enumerate(names) if fnmatchcase(each, name)]


def _nodes_in(platform: Platform, nics: Iterable[int]) -> list[int]:
    """List the nodes inside of a host: its NICs, and switches that forward for others and end with it all the same."""
    nics, wires = list(nics), platform.wires
    beyond = {int(node) for nic in nics for node in wires.target[wires.first[nic] : wires.first[nic + 1]]}
    return [*nics, *sorted(beyond & platform.embedded)]


def _wires_at(platform: Platform, nodes: Iterable[int]) -> tuple[int, ...]:
    wires = platform.wires
    leaving = [wire for node in nodes for wire in range(int(wires.first[node]), int(wires.first[node + 1]))]
    return tuple(sorted({*leaving, *wires.reverse[leaving].tolist()}))
