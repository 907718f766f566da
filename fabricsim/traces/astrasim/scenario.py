"""Scenarios made of ASTRA-sim's configurations: hosts that limit nothing on the network that is described.

A network of one dimension becomes one GPU per host. Of two dimensions, where NPUs of the first are on a switch, the
first is inside the hosts, and each place in them has a network of its own: NVLink and rails. Other networks become one
GPU per host on cables from a file, where each host has a router with the links of its NPU.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from fabricsim.files.atomic import whole
from fabricsim.scenario.source import not_a_file
from fabricsim.topology.astrasim_file import CableRow, NetworkDimension, cables_of, plain, read_network
from fabricsim.traces.astrasim.config import System, read_system

_NS_PER_METRE = 5  # of a cable here
_SAME = {
    "ring": {"all_reduce": "ring", "reduce_scatter": "ring", "all_gather": "ring"},
    "doubleBinaryTree": {"all_reduce": "tree"},
    "halvingDoubling": {
        "all_reduce": "halving_doubling",
        "reduce_scatter": "recursive_halving",
        "all_gather": "recursive_doubling",
    },
    "direct": dict.fromkeys(("all_reduce", "reduce_scatter", "all_gather", "all_to_all"), "direct"),
}


@dataclass
class Written:
    """A scenario in the making.

    `lines`: of the scenario, without what is said of losses.
    `cables`: of the file beside it; empty if it needs none.
    `losses`: what is not carried over, a sentence each, without a full stop.
    """

    lines: list[str] = field(default_factory=list)
    cables: list[CableRow] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)


def cables_file(output: Path) -> Path:
    """Name the file of cables beside a scenario."""
    return output.with_name(f"{output.stem}-cables.csv")


def convert(network: Path | str, system: Path | str | None, output: Path | str) -> tuple[str, ...]:
    """Write the scenario of a network, and of a system configuration if there is one.

    `network`, `system`: YAML and JSON of ASTRA-sim.
    `output`: the scenario. If it needs a file of cables, that is written beside it as ``<name>-cables.csv``.
    Returns: what is not carried over, a sentence each, without a full stop.
    Raises TraceError if a configuration cannot be used; InputError if the network has more than `MOST_CABLES`, or a
        file cannot be written.
    """
    output = Path(output)
    dimensions = read_network(network)
    read = read_system(system) if system is not None else None
    written = made(dimensions, read, cables_file(output).name, output.parent)
    names = [Path(network).name, *([Path(system).name] if system is not None else [])]
    head = [f"# Made of {ascii(' and '.join(names))[1:-1]} of ASTRA-sim", f"name = {_quoted(output.stem)}"]
    losses = [f"# Not carried over: {loss}" for loss in written.losses]
    texts = {output: "\n".join([*head[:1], *losses, head[1], *written.lines, ""])}
    if written.cables:
        rows = "".join(f"{','.join(cable)}\n" for cable in written.cables)
        texts[cables_file(output)] = f"a,b,gbps,delay_ns\n{rows}"
    with ExitStack() as files:  # none takes its place before all are written
        for path, text in texts.items():
            files.enter_context(whole(path, "name another place")).write_text(text, encoding="ascii")
    return tuple(written.losses)


def made(dimensions: Sequence[NetworkDimension], system: System | None, cables: str, folder: Path) -> Written:
    """Lay out a scenario.

    `cables`: name for the file of cables.
    `folder`: that of the scenario, for the names of files beside it.
    """
    written = Written()
    first = dimensions[0]
    in_hosts = len(dimensions) == 2 and first.shape == "Switch"  # noqa: PLR2004  hosts, and between them
    if in_hosts:
        _hosts_and_rails(written, first, dimensions[1], cables)
    elif len(dimensions) == 1 and first.shape == "Switch":
        _one_switch(written, first)
    else:
        _routers(written, dimensions, cables)
    _collectives(written, dimensions, system, folder, in_hosts=in_hosts)
    if system is not None:
        for key, value in system.others.items():
            written.losses.append(f"{key} = {value}")
    return written


def _one_switch(written: Written, dimension: NetworkDimension) -> None:
    written.lines += [
        f'cluster = {{ include = "ideal", hosts = {dimension.npus} }} # E: npus_count',
        "",
        "[fabric]",
        'topology = "single-switch" # E: topology Switch',
        _cable_length(dimension),
        "",
        *_transport(dimension),
    ]


def _hosts_and_rails(written: Written, inside: NetworkDimension, between: NetworkDimension, cables: str) -> None:
    """Write the first dimension as NVLink, the second as one network for each place in a host."""
    nvlink = f'nvlink_rate = "{inside.bandwidth}GiBps", nvlink_efficiency = 1.0'
    gpu = f'gpu = {{ include = "a100-sxm-80gb", {nvlink} }} # E: {inside.bandwidth} GB/s, of 2^30 bytes'
    written.lines += [
        "",
        "[cluster]",
        'include = "ideal"',
        f"hosts = {between.npus} # E: npus_count of the second dimension",
        f"gpus_per_host = {inside.npus} # E: npus_count of the first",
        f"nics_per_host = {inside.npus}",
        'intra_host = "nvlink" # E: topology Switch',
        "pxn = true # messages between rails go over the first dimension, then over the second",
        gpu,
        "",
        "[fabric]",
    ]
    if between.shape == "Switch":
        written.lines += ['topology = "single-switch" # E: topology Switch', "rails = true", _cable_length(between)]
    else:
        for rail in range(inside.npus):
            ends = [f"host{host}/nic{rail}" for host in range(between.npus)]
            written.cables += cables_of(ends, [between], f"rail{rail}")
        written.lines += _file(cables, [between])
    written.lines += ["", *_transport(between)]


def _routers(written: Written, dimensions: Sequence[NetworkDimension], cables: str) -> None:
    """Give each host a router, which has the links of its NPU in all dimensions."""
    npus = prod(dimension.npus for dimension in dimensions)
    written.cables += cables_of([f"host{npu}" for npu in range(npus)], dimensions, "")
    written.lines += [
        f'cluster = {{ include = "ideal", hosts = {npus} }} # E: npus_count',
        "",
        "[fabric]",
        *_file(cables, dimensions),
        "",
        *_transport(max(dimensions, key=lambda dimension: float(dimension.bandwidth))),
    ]


def _file(cables: str, dimensions: Sequence[NetworkDimension]) -> list[str]:
    shapes = ", ".join(dimension.shape for dimension in dimensions)
    return ['topology = "file"', f"links = {_quoted(cables)} # E: topology {shapes}, its bandwidth and latency"]


def _cable_length(dimension: NetworkDimension) -> str:
    metres = plain(float(dimension.latency) / _NS_PER_METRE)
    return f'host_cable = "{metres}m" # E: {dimension.latency} ns per link, at {_NS_PER_METRE} ns/m'


def _transport(dimension: NetworkDimension) -> list[str]:
    return [
        "[transport]",
        'include = "ideal-100g" # no headers and no cost of hosts, as in the analytical back end',
        'name = "astra-sim"',
        f'line_rate = "{dimension.bandwidth}GiBps" # E: {dimension.bandwidth} GB/s, of 2^30 bytes (NetworkFunction.cc)',
    ]


def _collectives(
    written: Written, dimensions: Sequence[NetworkDimension], system: System | None, folder: Path, *, in_hosts: bool
) -> None:
    """Choose algorithms; one that is not here is taken as fabricsim's first, and that is said."""
    written.lines += ["", "[collectives]", 'include = "ideal"']
    if in_hosts:
        step = plain(2 * float(dimensions[0].latency))
        written.lines.append(f'intra_host_step = "{step}ns" # E: two links of {dimensions[0].latency} ns')
    if system is None:
        return
    npus = prod(dimension.npus for dimension in dimensions)
    chosen = _custom(written, system, folder)
    for collective, names in system.algorithms.items():
        if collective in chosen:
            continue
        name = _algorithm(collective, names, npus, several=len(dimensions) > 1)
        if name is None and in_hosts and collective == "all_reduce" and set(names) == {"ring"}:
            name = "hierarchical"
        if name is None:
            direct = collective == "all_to_all" or all(each.lower().startswith("direct") for each in names)
            taken = "direct" if direct else "ring"
            over = f" over {len(dimensions)} dimensions" if len(dimensions) > 1 else ""
            written.losses.append(f"{collective} by {', '.join(names)}{over}; it runs by {taken} over all NPUs")
            name = taken
        elif name == "direct" and names[0][-1].isdigit():
            written.losses.append(f"the window of {collective} by {names[0]}; members send to all others at once")
        chosen[collective] = name
    if chosen:
        table = ", ".join(f"{collective} = {_quoted(name)}" for collective, name in chosen.items())
        written.lines.append(f"algorithm = {{ {table} }}")


def _custom(written: Written, system: System, folder: Path) -> dict[str, str]:
    """Find Chakra files of algorithms; of those that are not there it is said.

    ASTRA-sim looks from its working directory, which often is a folder above that of the configuration.
    """
    found = {}
    beside = folder.absolute()
    for collective, name in system.custom.items():
        places = [above / f"{name}.0.et" for above in (Path.cwd(), *system.path.absolute().parents)]
        first = next((place for place in places if not not_a_file(place)), None)
        if first is None:
            shown = ascii(name)[:100]
            written.losses.append(f"{collective} by the files {shown}, of which .0.et is not found")
            continue
        near = first.relative_to(beside) if first.is_relative_to(beside) else first
        found[collective] = f"{str(near).removesuffix('0.et')}*.et"
    return found


def _algorithm(collective: str, names: tuple[str, ...], npus: int, *, several: bool) -> str | None:
    """Find the algorithm that does the same; None if there is none."""
    name = names[0]
    if name.startswith("one"):  # one over all dimensions
        name = name[3:4].lower() + name[4:]
    elif several:
        return None
    name = _SAME.get(name.rstrip("0123456789"), {}).get(collective, "")
    if name.startswith("recursive") and npus & (npus - 1):
        return None  # needs a power of two
    return name or None


def _quoted(text: str) -> str:
    """Write a string of TOML."""
    escaped = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'
