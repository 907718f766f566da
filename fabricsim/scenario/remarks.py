"""What a reader of a result has to know of a scenario and is no mistake, such as settings without effect."""

from collections.abc import Iterable, Iterator
from itertools import chain

from fabricsim.scenario.scenario import Scenario
from fabricsim.units import human_count

_FRAMING = {"payload", "header"}  # of transport.packet; flows know them, too
_TIMERS = {"minimum_timeout", "maximum_timeout", "maximum_window"}  # what is sent again after a failure
_PORT_TO_PORT = {"name", "include", "latency", "forwarding"}  # of a switch


def remarks(scenario: Scenario, asked: Iterable[str] = (), ranks: int | None = None) -> list[str]:
    """Say what a reader has to know, a sentence each.

    `asked`: keys of settings that were laid over the scenario, such as ``"transport.packet.reordering"``.
    `ranks`: those that run collectives; None if only traffic is sent.
    """
    said = (_idle(scenario, ranks), _without_costs(scenario, ranks), _faster_wire(scenario), _unread(scenario, asked))
    return list(chain.from_iterable(said))


def _idle(scenario: Scenario, ranks: int | None) -> Iterator[str]:
    gpus = scenario.cluster.ranks
    if ranks is not None and ranks < gpus:
        yield f"{gpus - ranks:,} of {human_count(gpus, 'GPUs')} without a job, for {human_count(ranks, 'ranks')}"


def _without_costs(scenario: Scenario, ranks: int | None) -> Iterator[str]:
    if ranks is not None and ranks > 1 and "collectives" not in scenario.model_fields_set:
        yield "default of collectives: no times to start and for each step, which its presets have (nccl, rccl, ...)"


def _faster_wire(scenario: Scenario) -> Iterator[str]:
    wire, port = scenario.fabric.link_rate, min(each.transport.line_rate for each in scenario.of_kinds)
    if wire is not None and wire > port and not scenario.fabric.cables:  # which may be slower to some hosts
        said = f"fabric.link_rate {_gbps(wire)} is more than transport.line_rate {_gbps(port)} of the adapters"
        yield f"{said}, which are taken to be as fast"


def _gbps(rate: float) -> str:
    return f"{rate * 8 / 1e9:.4g} Gb/s"


def _unread(scenario: Scenario, asked: Iterable[str]) -> Iterator[str]:
    failing = bool(scenario.fabric.failures)
    if scenario.engine == "flow" and (keys := [key for key in asked if _of_packets(key, failing=failing)]):
        said = f"{', '.join(dict.fromkeys(keys))}: no effect in the flow engine, which shares links max-min fairly"
        yield f'{said} and has no packets and queues; set engine = "packet"'


def _of_packets(key: str, *, failing: bool) -> bool:
    """Whether only the packet engine reads a key; with failures the flow engine reads what they wait for."""
    table, _, name = key.rpartition(".")
    if key.startswith("fabric.switch."):
        return key.split(".")[2] not in _PORT_TO_PORT | ({"credits"} if failing else set())
    if table == "transport.packet":
        return name not in _FRAMING | (_TIMERS if failing else set())
    if key.startswith("transport.load_balancing"):
        return not failing
    # some laws are paced, which flows know
    return key.startswith("transport.congestion_control.") and name not in {"law", "include"}
