"""Checks of what only the packet engine uses: switches, transports, and how they fit together.

What stands in one table, or in one switch, is checked always; a transport is held against a switch only
if the packet engine is chosen, since the flow engine uses neither's packet settings.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from fabricsim.errors import Mistake
from fabricsim.extensions import answers
from fabricsim.scenario.in_force import law_in_force, longest_payload, rule_in_force, setting
from fabricsim.scenario.packet import SOCKET_KINDS
from fabricsim.scenario.partial import Unsettled
from fabricsim.scenario.parts import Parts
from fabricsim.scenario.switch import SwitchSpec
from fabricsim.scenario.transport import Transport

Check = Callable[[Parts], Iterator[Mistake]]
SwitchCheck = Callable[[SwitchSpec, str], Iterator[Mistake]]

_OF_RECOVERY = {"reordering": "selective", "nack_interval": "go-back-n"}


def packet_checks() -> tuple[Check, ...]:
    """Return the checks, each of which yields the mistakes that it finds in a scenario."""
    return (
        *(partial(_of_switch, table=table, check=check) for table in ("fabric", "transport") for check in _OF_SWITCH),
        *_OF_SCENARIO,
    )


def _of_switch(scenario: Parts, table: str, check: SwitchCheck) -> Iterator[Mistake]:
    switch = scenario.fabric.switch if table == "fabric" else scenario.transport.switch
    if switch is not None:
        yield from check(switch, f"{table}.switch")


def _buffer(switch: SwitchSpec, at: str) -> Iterator[Mistake]:
    buffer = switch.buffer
    if buffer is None:
        return
    if buffer.per_port is None and buffer.shared is None:
        yield Mistake(f"{at}.buffer", "has no size", "write per_port or shared")
    if buffer.per_port is not None and buffer.shared is not None:
        yield Mistake(f"{at}.buffer.per_port", "excludes shared: a buffer is static or shared", "take one out")
    if buffer.alpha is not None and buffer.shared is None:
        yield Mistake(f"{at}.buffer.alpha", "has no effect without shared", "take it out, or write shared")


def _ecn(switch: SwitchSpec, at: str) -> Iterator[Mistake]:
    ecn = switch.ecn
    if ecn is not None and ecn.low > ecn.high:
        yield Mistake(f"{at}.ecn.low", f"{ecn.low} B is above high, {ecn.high} B", "lower it, or raise high")
    if ecn is not None and ecn.low == ecn.high and ecn.probability != 1.0:
        problem = f"{ecn.probability:g} has no effect with low = high: all is marked"
        yield Mistake(f"{at}.ecn.probability", problem, "take it out, or write 1.0")


def _one_flow_control(switch: SwitchSpec, at: str) -> Iterator[Mistake]:
    if switch.credits is None:
        return
    if switch.pfc is not None:
        yield Mistake(f"{at}.pfc", "excludes credits: a link has one flow control", 'take one out, or set it to "none"')
    if switch.buffer is not None:
        problem = "has no effect with credits, which keep every class from overflowing"
        yield Mistake(f"{at}.buffer", problem, 'take it out, or set it to "none"')


def _pfc(switch: SwitchSpec, at: str) -> Iterator[Mistake]:
    pfc = switch.pfc
    if pfc is None:
        return
    if pfc.alpha is None and pfc.above is None:
        yield Mistake(f"{at}.pfc.above", "is missing: a threshold without alpha needs it", "add it, or alpha")
    if pfc.alpha is None and pfc.above is not None and pfc.below > pfc.above:
        yield Mistake(f"{at}.pfc.below", f"{pfc.below} B is more than above, {pfc.above} B", "lower it, or raise above")
    if pfc.alpha is not None and (switch.buffer is None or switch.buffer.shared is None):
        yield Mistake(f"{at}.pfc.alpha", "is a share of a shared buffer, and there is none", "write buffer.shared")


def _pfc_classes(switch: SwitchSpec, at: str) -> Iterator[Mistake]:
    if switch.pfc is not None and not switch.pfc.classes:
        yield Mistake(f"{at}.pfc.classes", "is empty, so that nothing is ever paused", "name a class")
    for number in () if switch.pfc is None else switch.pfc.classes:
        if number >= switch.classes:
            problem = f"{number} is no class of a switch with {switch.classes} (counted from 0)"
            yield Mistake(f"{at}.pfc.classes", problem, f"at most {switch.classes - 1}, or raise classes")


def _trimming(switch: SwitchSpec, at: str) -> Iterator[Mistake]:
    if switch.trimming and switch.buffer is None:
        yield Mistake(f"{at}.trimming", "has no effect without a buffer that can be full", "write buffer.per_port")
    if switch.trimming and switch.classes == 1:
        problem = "needs a second class: trimmed packets go ahead of the others in class 0"
        yield Mistake(f"{at}.trimming", problem, "set classes = 2")


def _scheduler(switch: SwitchSpec, at: str) -> Iterator[Mistake]:
    scheduler = switch.scheduler
    if scheduler is None:
        return
    if switch.classes == 1:
        yield Mistake(f"{at}.scheduler", "has no effect with one class", "raise classes, or take it out")
    if scheduler.kind == "strict" and scheduler.weights:
        yield Mistake(f"{at}.scheduler.weights", "has no effect with strict priority", 'take it out, or choose "dwrr"')
    if scheduler.kind == "dwrr" and len(scheduler.weights) != switch.classes:
        problem = f"{len(scheduler.weights)} weights do not fit {switch.classes} classes"
        yield Mistake(f"{at}.scheduler.weights", problem, "write one per class")


def _recovery(scenario: Parts) -> Iterator[Mistake]:
    packet = scenario.transport.packet
    recovery = setting(scenario.transport, "recovery")
    for key, needed in _OF_RECOVERY.items():
        if packet is not None and getattr(packet, key) is not None and recovery != needed:
            problem = f'has no effect with recovery = "{recovery}"'
            yield Mistake(f"transport.packet.{key}", problem, f'take it out, or choose "{needed}"')


def _device_queue(scenario: Parts) -> Iterator[Mistake]:
    transport, packet = scenario.transport, scenario.transport.packet
    if packet is not None and packet.device_queue and transport.kind not in SOCKET_KINDS:
        problem = f"is the queue of a kernel's device, which {transport.kind} passes by"
        yield Mistake("transport.packet.device_queue", problem, "take it out")
    if packet is None or packet.device_mark is None:
        return
    key = "transport.packet.device_mark"
    if not packet.device_queue:
        yield Mistake(key, "has no effect without device_queue", "take it out")
    elif not law_in_force(transport).ecn:
        yield Mistake(key, "has no effect on a law without ECN", 'take it out, or choose "dctcp"')
    elif scenario.switch.pfc is not None or scenario.switch.credits is not None:
        yield Mistake(key, "has no effect with PFC or credits", "take it out")


def _acknowledgements(scenario: Parts) -> Iterator[Mistake]:
    every, delay = (setting(scenario.transport, key) for key in ("ack_every", "ack_delay"))
    if every > 1 and not delay:
        yield from _untimed_acknowledgements(scenario.transport, every)
    packet = scenario.transport.packet
    if packet is not None and packet.quick_acks and every == 1:
        problem = f"{packet.quick_acks} has no effect with ack_every 1: nothing is delayed"
        yield Mistake("transport.packet.quick_acks", problem, "take it out")


def _untimed_acknowledgements(transport: Transport, every: int) -> Iterator[Mistake]:
    """Yield what would have a sender wait for an ACK while the receiver waits for more packets."""
    law = law_in_force(transport)
    window = setting(transport, "maximum_window")
    payload = longest_payload(transport)
    if not law.fixed_window:
        problem = f"{every} needs ack_delay with {law.law}: its window may be less than {every} packets"
        yield Mistake("transport.packet.ack_every", problem, "write ack_delay, or ack_every = 1")
    elif window is not None and window < every * payload:
        problem = f"{window} B is less than {every} packets of {payload} B, which are acknowledged together (ack_every)"
        yield Mistake("transport.packet.maximum_window", problem, "raise it, or lower ack_every")


def _timeouts(scenario: Parts) -> Iterator[Mistake]:
    keys = ("minimum_timeout", "initial_timeout", "maximum_timeout")
    minimum, initial, maximum = (setting(scenario.transport, key) for key in keys)
    if not minimum <= initial <= maximum:
        written = scenario.transport.packet
        key = next(key for key in keys if written is not None and getattr(written, key) is not None)
        problem = "does not fit: it has to be minimum_timeout <= initial_timeout <= maximum_timeout"
        yield Mistake(f"transport.packet.{key}", problem, "write all three")


def _balancing(scenario: Parts) -> Iterator[Mistake]:
    rule = rule_in_force(scenario.transport)
    if law_in_force(scenario.transport).telemetry and not rule.one_path:
        problem = f'"{rule.kind}" does not go with in-band telemetry, which compares packets of one path'
        yield Mistake("transport.load_balancing.kind", problem, 'write "ecmp", or choose another law')


def _law(scenario: Parts) -> Iterator[Mistake]:
    kind, law = scenario.transport.kind, law_in_force(scenario.transport)
    if law.pulled and kind != "roce":
        problem = f"is {law.law!r}, whose pulls {kind} does not know"
        yield Mistake("transport.congestion_control.law", problem, 'choose another law, or a transport of kind "roce"')
    for mistake in answers(law.problems, Mistake):
        yield replace(mistake, key=f"transport.congestion_control.{mistake.key}")


def _failures(scenario: Parts) -> Iterator[Mistake]:
    for index, failure in enumerate(scenario.fabric.failures):
        for key, problem, way_out in failure.problems():
            yield Mistake(f"fabric.failures[{index}].{key}", problem, way_out)


def _packet_engine_only(scenario: Parts) -> Iterator[Mistake]:
    if scenario.engine == "flow" and scenario.fabric.bit_error_rate:
        problem = 'has no effect with engine = "flow", which loses nothing'
        yield Mistake("fabric.bit_error_rate", problem, 'set engine = "packet", or take it out')
    for pattern, change in scenario.fabric.cables.items():
        if scenario.engine == "flow" and change.bit_error_rate:
            problem = 'has no effect with engine = "flow", which loses nothing'
            yield Mistake(f"fabric.cables.{pattern}", problem, 'set engine = "packet", or take bit_error_rate out')


def _switch_in_packets(scenario: Parts) -> SwitchSpec:
    """Return the switch in force; with another engine, checks against it end here."""
    if scenario.engine == "flow":
        raise Unsettled
    return scenario.switch


def _virtual_lanes(scenario: Parts) -> Iterator[Mistake]:
    fabric, key = scenario.fabric, "fabric.virtual_lanes"
    if fabric.virtual_lanes == 1:
        return
    if fabric.routing in {"d-mod-k", "ugal"}:
        problem = f"does not go with {fabric.routing!r}: a lane is that of the way between two switches"
        yield Mistake(key, problem, "choose another routing, or take it out")
    balancing = scenario.transport.load_balancing
    if balancing is not None and balancing.kind != "ecmp":
        yield Mistake(key, f'does not go with "{balancing.kind}", which changes ways', 'write kind = "ecmp"')
    for name in ("data_class", "ack_class"):
        if scenario.transport.packet is not None and getattr(scenario.transport.packet, name):
            yield Mistake(f"transport.packet.{name}", "has no effect with fabric.virtual_lanes", "take it out")
    switch = _switch_in_packets(scenario)
    lossless = range(switch.classes) if switch.pfc is None else switch.pfc.classes
    if not set(range(fabric.virtual_lanes)) <= set(lossless):
        problem = (
            f"{fabric.virtual_lanes} lanes are more than the {len(lossless)} classes of the switch that it may use"
        )
        yield Mistake(key, problem, "raise classes (and pfc.classes) of the switch")


def _classes(scenario: Parts) -> Iterator[Mistake]:
    switch = _switch_in_packets(scenario)
    for key in ("data_class", "ack_class"):
        number = setting(scenario.transport, key)
        if number >= switch.classes:
            problem = f"{number} is no class of the switch {switch.name!r} with {switch.classes} (counted from 0)"
            yield Mistake(f"transport.packet.{key}", problem, f"at most {switch.classes - 1}, or raise its classes")


def _trimmed(scenario: Parts) -> Iterator[Mistake]:
    switch = _switch_in_packets(scenario)
    if switch.trimming and setting(scenario.transport, "data_class") == 0:
        problem = f"is 0, the class of the packets that the switch {switch.name!r} trims"
        yield Mistake("transport.packet.data_class", problem, "set it to 1")
    if switch.trimming and setting(scenario.transport, "recovery") != "selective":
        problem = f"go-back-N has no use for packets that the switch {switch.name!r} trims"
        yield Mistake("transport.packet.recovery", problem, 'choose "selective", or a switch without trimming')


def _room_for_a_packet(scenario: Parts) -> Iterator[Mistake]:
    switch, transport = _switch_in_packets(scenario), scenario.transport
    payload = longest_payload(transport)
    if switch.credits is not None and switch.credits.per_class < payload:
        problem = f"the switch {switch.name!r} gives credits for {switch.credits.per_class} B, less than a full packet"
        yield Mistake("transport.mtu", problem, "lower it, or raise credits.per_class of the switch")


_OF_SWITCH: tuple[SwitchCheck, ...] = (_buffer, _ecn, _one_flow_control, _pfc, _pfc_classes, _trimming, _scheduler)

_OF_SCENARIO: tuple[Check, ...] = (
    _recovery,
    _device_queue,
    _acknowledgements,
    _timeouts,
    _balancing,
    _law,
    _failures,
    _packet_engine_only,
    _virtual_lanes,
    _classes,
    _trimmed,
    _room_for_a_packet,
)
