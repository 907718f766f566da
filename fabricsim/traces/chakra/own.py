"""Attributes of fabricsim's own in Chakra files: what the schema has no field for, so that nothing is lost.

All names begin with ``fabricsim_``; other readers skip them.

====================  ===================================================================================
of a file
``world``             ranks of the job
``host``, ``device``  where it was captured
``origin_ns``         time 0 of its starts
``groups``            JSON: for each ``pg_name`` its name, description and ranks, if that is not its name
of a node
``kind``              as in `fabricsim.traces.trace.KINDS`, where type and ``is_cpu_op`` do not say it
``lane``              kind and name, where ``stream`` or ``tid`` do not say it
``start_ps``          after ``origin_ns``
``duration_ps``       where ``duration_micros`` does not say it
``sequence``          number of a communication in its group
``datatype``          of a communication
``size``              as nccl-tests counts it, where ``comm_size`` and the group do not say it
``nic``               adapter of a send or receive
``sent``, ``received``  bytes to and from each member
====================  ===================================================================================
"""

import json
from collections.abc import Iterator, Mapping

import msgspec

from fabricsim.records.program import NONE
from fabricsim.traces.chakra.groups import Named
from fabricsim.traces.chakra.json_form import Rank
from fabricsim.traces.chakra.schema import Attribute, Value
from fabricsim.traces.trace import COMMUNICATION, COMPUTE, COPY, HOST, KINDS, Communication, Lane, Recording

PREFIX = "fabricsim_"
OF_NODES = ("kind", "lane", "start_ps", "duration_ps", "sequence", "datatype", "size", "nic", "sent", "received")
"""Names of those of a node, without the prefix."""
COPIES = ("Memcpy ", "Memset ")
"""Beginnings of the names that PyTorch's profiler gives to copies and fills of a device."""

Attributes = dict[str, "Value | tuple[Value, ...]"]


def by_name(attributes: tuple[Attribute, ...]) -> Attributes:
    """Give the values of attributes; the last of a name counts."""
    return {attribute.name: attribute.value for attribute in attributes}


def about(recording: Recording, world: int, groups: Mapping[str, Named]) -> Iterator[Attribute]:
    """Say of a file what is not said elsewhere."""
    if world != NONE:
        yield Attribute(f"{PREFIX}world", "int64", world)
    for key, text in (("host", recording.host), ("device", recording.device)):
        if text:
            yield Attribute(PREFIX + key, "string", text)
    if recording.origin:
        yield Attribute(f"{PREFIX}origin_ns", "int64", recording.origin)
    if groups:
        yield Attribute(f"{PREFIX}groups", "string", json.dumps(groups))


def groups_of(attributes: Attributes) -> dict[str, Named]:
    """Read name, description and ranks of groups by their ``pg_name``; raises `msgspec.MsgspecError`."""
    text = attributes.get(f"{PREFIX}groups", "{}")
    return msgspec.json.decode(str(text), type=dict[str, tuple[str, str, tuple[Rank, ...]]])


def by_host(kind: int) -> bool:
    """Whether a thread of the host does what is of this kind, not a device."""
    return kind not in {COMPUTE, COMMUNICATION, COPY}


def plain_kind(kind: int, name: str) -> int:
    """Give the kind of a node of which only its name and whether the host does it are known."""
    return COPY if kind == COMPUTE and name.startswith(COPIES) else kind


def plain_lane(kind: int, attributes: Attributes) -> Lane:
    """Give the lane that standard attributes name; the profiler calls a stream ``tid``, too."""
    number = attributes.get("stream", attributes.get("tid"))
    if not isinstance(number, int) or number < 0:
        return Lane("any", "")
    return Lane("thread", f"thread {number}") if by_host(kind) else Lane("stream", f"stream {number}")


def of_work(kind: int, name: str) -> Iterator[Attribute]:
    """Say what a node is."""
    yield Attribute("is_cpu_op", "bool", by_host(kind))
    if kind != COMMUNICATION and plain_kind(HOST if by_host(kind) else COMPUTE, name) != kind:
        yield Attribute(f"{PREFIX}kind", "string", KINDS[kind])


def of_lane(kind: int, lane: Lane) -> Iterator[Attribute]:
    """Say where a node runs."""
    word, _, number = lane.name.partition(" ")
    short = number.isascii() and number.isdigit() and len(number) < 10 and str(int(number)) == number  # noqa: PLR2004
    if short and word == lane.kind == ("thread" if by_host(kind) else "stream"):
        yield Attribute("tid" if by_host(kind) else "stream", "int64", int(number))
    elif lane != Lane("any", ""):
        yield Attribute(f"{PREFIX}lane", "string", f"{lane.kind} {lane.name}")


def of_times(start: int, duration: int, sequence: int, *, said: int) -> Iterator[Attribute]:
    """Say times and number exactly; `said` is the duration that a reader takes from the rest."""
    if start != NONE:
        yield Attribute(f"{PREFIX}start_ps", "int64", start)
    if duration not in {said, NONE}:
        yield Attribute(f"{PREFIX}duration_ps", "int64", duration)
    if sequence != NONE:
        yield Attribute(f"{PREFIX}sequence", "int64", sequence)


def of_communication(what: Communication, *, said: int) -> Iterator[Attribute]:
    """Say what `what` is beyond its bytes; `said` is the size that a reader takes from the rest."""
    if what.datatype:
        yield Attribute(f"{PREFIX}datatype", "string", what.datatype)
    for key, value, known in (("size", what.size, said), ("nic", what.nic, NONE)):
        if value not in {known, NONE}:
            yield Attribute(PREFIX + key, "int64", value)
    for key, bytes_ in (("sent", what.sent), ("received", what.received)):
        if bytes_:
            yield Attribute(PREFIX + key, "int64 list", bytes_)
