"""Networks in InfraGraph, the graphs of infrastructure of ASTRA-sim 3 and Chakra, as cables.

Keys after ``artifacts/openapi.yaml`` 2.4 of github.com/Keysight/infragraph; slices and schemes as
``infragraph_service.py`` there expands them. Instances of devices with an ``xpu`` are hosts, their components that have
edges are NICs, and all other instances are switches. What is inside of devices the scenario's cluster says.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

from fabricsim.errors import TraceError
from fabricsim.scenario.network import Ends
from fabricsim.scenario.suggest import did_you_mean, show

Place = tuple[tuple[int, int], ...]  # of a component: its number and index in its device, and so on inside of that

MOST_EDGES = 500_000
"""Edges of the largest network, written out."""

_SLICED = re.compile(r"([^\[\]]{1,200})(?:\[(-?\d{0,6})(?:(:)(-?\d{0,6})(?::(-?\d{0,6}))?)?\])?", re.ASCII)
_GBPS = {"gigabits_per_second": 1.0, "gigabytes_per_second": 8.0}
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_HOST_DELAY, _SWITCH_DELAY = 25.0, 150.0  # ns, of 5 and 30 m: what other topologies take if nothing is said


class _Component(NamedTuple):
    name: str
    number: int
    kind: str


class _End(NamedTuple):
    """A component of an instance: name and index of that, the place of the component, and its kind."""

    instance: str
    at: int
    place: Place
    kind: str


class _Edge(NamedTuple):
    """An edge: number, ends, Gbit/s, and ns if it says."""

    number: int
    one: _End
    other: _End
    gbps: float
    delay: float | None


def rows(path: Path, whole: Any, ends: Ends) -> Iterator[tuple[int, dict[str, str]]]:  # noqa: ANN401  as decoded
    """Yield cables as lines of a CSV file; the number of an edge stands for its line.

    Raises TraceError if it is no InfraGraph, names what is not there, or the cluster has other hosts or NICs.
    """
    graph = _Graph(path, whole)
    edges = graph.edges()
    names = graph.name_hosts(edges, ends)
    between: dict[tuple[str, str, float], list[float]] = {}
    line: dict[tuple[str, str, float], int] = {}
    for edge in edges:
        called = [names.get((end.instance, end.at, end.place), "") for end in (edge.one, edge.other)]
        if not all(called):  # of GPUs, which their hosts join
            continue
        host = graph.is_host(edge.one) or graph.is_host(edge.other)
        delay = edge.delay if edge.delay is not None else _HOST_DELAY if host else _SWITCH_DELAY
        key = (min(called), max(called), delay)
        if host:
            yield edge.number, _row(key, [edge.gbps])
        else:
            between.setdefault(key, []).append(edge.gbps)
            line.setdefault(key, edge.number)
    yield from ((line[key], _row(key, rates)) for key, rates in between.items())


def _row(key: tuple[str, str, float], rates: Sequence[float]) -> dict[str, str]:
    return {"a": key[0], "b": key[1], "gbps": f"{sum(rates):.9f}", "delay_ns": f"{key[2]:.3f}"}


class _Graph:
    def __init__(self, path: Path, whole: Any) -> None:  # noqa: ANN401  as decoded
        self.path = path
        whole = whole.get("infrastructure", whole) if isinstance(whole, dict) else whole
        if not isinstance(whole, dict) or not whole.keys() >= {"devices", "instances", "edges"}:
            raise TraceError(self.path, "is no InfraGraph, which has devices, instances, links and edges")
        self.devices = {
            self._word(device, "name"): [self._component(each) for each in self._tables(device, "components")]
            for device in self._tables(whole, "devices")
        }
        self.instances = {
            self._word(each, "name"): (self._known(self._word(each, "device"), self.devices), self._count(each))
            for each in self._tables(whole, "instances")
        }
        self.links = {self._word(link, "name"): link for link in self._tables(whole, "links")}
        self._whole = whole
        self._hosts = {name: self._has_xpu(device) for name, (device, _) in self.instances.items()}

    def _tables(self, whole: dict[str, Any], key: str) -> list[dict[str, Any]]:
        found = whole.get(key) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise TraceError(self.path, f"{key} is no list of tables; write it as InfraGraph does")
        return found

    def _word(self, table: dict[str, Any], key: str) -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value:
            raise TraceError(
                self.path,
                f"{show(str(table.get('name', key)))} has no {key}; each device, component, instance and link has",
            )
        return value

    def _count(self, table: dict[str, Any]) -> int:
        text = str(table.get("count"))
        if not re.fullmatch(r"[1-9]\d{0,5}", text, re.ASCII):
            raise TraceError(
                self.path,
                f"count of {show(str(table.get('name')))} is {show(text)}; it is a whole number of at least 1",
            )
        return int(text)

    def _component(self, table: dict[str, Any]) -> _Component:
        return _Component(self._word(table, "name"), self._count(table), self._word(table, "choice"))

    def _known(self, name: str, known: Iterable[str], number: int | None = None) -> str:
        names = [*known]
        if name not in names:
            hint = did_you_mean(name, names, f"there are {', '.join(map(show, names[:8]))}")
            raise TraceError(self.path, f"{show(name)} is not there; {hint}", number)
        return name

    def _has_xpu(self, device: str) -> bool:
        """Whether a device, or one inside of it, has an xpu; devices may be inside of themselves."""
        inside = [device]
        for each in inside:
            nested = [part.name for part in self.devices[each] if part.kind == "device"]
            inside += [self._known(name, self.devices) for name in dict.fromkeys(nested) if name not in inside]
        return any(part.kind == "xpu" for each in inside for part in self.devices[each])

    def is_host(self, end: _End) -> bool:
        """Whether an end is a component of a host."""
        return self._hosts[end.instance]

    def edges(self) -> list[_Edge]:
        """Write out all edges, each pair of ends once, the last one of them."""
        found: dict[frozenset[_End], _Edge] = {}
        for number, edge in enumerate(self._tables(self._whole, "edges"), 1):
            ones, others = (self._ends(edge, key, number) for key in ("ep1", "ep2"))
            scheme = str(edge.get("scheme"))
            if scheme not in {"one2one", "many2many"}:
                raise TraceError(self.path, f"scheme is {show(scheme)}; it is one2one or many2many", number)
            pairs = zip(ones, others, strict=False) if scheme == "one2one" else product(ones, others)
            rate = self._quantity(edge, "bandwidth", _GBPS, number)
            delay = self._quantity(edge, "latency", _NS, number)
            if rate is None:
                raise TraceError(
                    self.path, f"link {show(str(edge.get('link')))} has no physical.bandwidth; give it one", number
                )
            most = MOST_EDGES - len(found) + 1
            found |= {frozenset(pair): _Edge(number, *pair, rate, delay) for pair in islice(pairs, most)}
            if len(found) > MOST_EDGES:
                raise TraceError(self.path, f"more than {MOST_EDGES} edges; describe a smaller network", number)
        return [edge for ends, edge in found.items() if len(ends) > 1]

    def _quantity(self, edge: dict[str, Any], key: str, units: dict[str, float], number: int) -> float | None:
        link = self.links[self._known(str(edge.get("link")), self.links, number)]
        physical = link.get("physical")
        table = physical.get(key) if isinstance(physical, dict) else None
        if not table:
            return None
        unit = next((unit for unit in units if isinstance(table, dict) and unit in table), None)
        text = str(table[unit]) if unit else ""
        if unit is None or not re.fullmatch(r"\d{1,12}(?:\.\d{0,12})?(?:[eE][+-]?\d{1,2})?", text, re.ASCII):
            raise TraceError(
                self.path, f"{key} of link {show(str(edge.get('link')))} is no number of {', '.join(units)}", number
            )
        return float(text) * units[unit]

    def _ends(self, edge: dict[str, Any], key: str, number: int) -> list[_End]:
        end = edge.get(key)
        if not isinstance(end, dict):
            raise TraceError(self.path, f"{key} is no table with instance and component", number)
        name = self._word(end, "instance").split("[", maxsplit=1)[0]
        device, count = self.instances[self._known(name, self.instances, number)]
        indices = self._indices(self._word(end, "instance"), count, number)
        places: list[tuple[Place, str]] = [((), "")]
        for part in self._word(end, "component").split("."):
            if part.split("[")[0] == device and not places[0][0]:
                continue  # the device's own name may go before
            components = {each.name: (place, each) for place, each in enumerate(self.devices.get(device, []))}
            place, component = components[self._known(part.split("[")[0], components, number)]
            here = [(place, index) for index in self._indices(part, component.number, number)]
            if len(places) * len(here) * len(indices) > MOST_EDGES:
                raise TraceError(self.path, f"more than {MOST_EDGES} ends; describe a smaller network", number)
            places = [((*before, each), component.kind) for (before, _), each in product(places, here)]
            device = component.name
        return [_End(name, index, *place) for index in indices for place in places]

    def _indices(self, text: str, count: int, number: int) -> range:
        sliced = _SLICED.fullmatch(text)
        if sliced is None:
            raise TraceError(self.path, f"{show(text)} is no name with a slice, such as nic[0:4]", number)
        _, start, colon, stop, step = sliced.groups()
        if start and not colon:
            if not -count <= int(start) < count:
                raise TraceError(self.path, f"{show(text)} is not there: there are {count}, counted from 0", number)
            return range(count)[int(start) : int(start) + 1 or None]
        start, stop, step = (int(each) if each else None for each in (start, stop, step))
        if step == 0 or (stop is not None and stop > count):
            raise TraceError(self.path, f"{show(text)} goes beyond what is there: {count}, counted from 0", number)
        return range(count)[start:stop:step]

    def name_hosts(self, edges: Sequence[_Edge], ends: Ends) -> dict[tuple[str, int, Place], str]:
        """Name each component that has a cable: NICs in the order of hosts and of components, switches by their number.

        GPUs with edges of their own are the NICs of a host that has no others; beside others they are left out, since
        hosts join their GPUs.
        """
        used: dict[tuple[str, int], dict[Place, str]] = {}
        for edge in edges:
            for end in (edge.one, edge.other):
                used.setdefault((end.instance, end.at), {})[end.place] = end.kind
        hosts = [
            (name, index) for name, (_, count) in self.instances.items() if self._hosts[name] for index in range(count)
        ]
        if len(hosts) != ends.hosts:
            raise TraceError(
                self.path,
                f"has {len(hosts)} hosts, instances with an xpu, and the cluster {ends.hosts}; set cluster.hosts",
            )
        names: dict[tuple[str, int, Place], str] = {}
        for number, host in enumerate(hosts):
            places = used.get(host, {})
            nics = sorted(place for place, kind in places.items() if kind != "xpu") or sorted(places)
            if len(nics) != ends.nics_per_host:
                what = f"{host[0]}[{host[1]}] has cables at {len(nics)} of its components"
                way_out = f"a host of the cluster has {ends.nics_per_host} NICs; set cluster.nics_per_host"
                raise TraceError(self.path, f"{what}, and {way_out}")
            names |= {(*host, place): ends.name(number * ends.nics_per_host + nic) for nic, place in enumerate(nics)}
        for (name, index), places in used.items():
            if not self._hosts[name]:
                called = f"{re.sub(r'[^A-Za-z0-9_.]', '_', name)[:50]}{index}"
                called = called if called[0].isalpha() and not called.startswith("host") else f"switch_{called}"
                names |= {(name, index, place): called for place in places}
        return names
