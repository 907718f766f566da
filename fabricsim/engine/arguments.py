"""What a process may give a fabric: numbers and groups that are checked before anything is posted."""

import operator
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import SimulationError
from fabricsim.units import RATE, parse

_LARGEST = 2**53  # bytes; float64 counts them one by one up to here
_LAST_PORT = 2**31 - 1
_SENT = np.dtype([(name, np.int64) for name in ("source", "target", "bytes", "start")])


def whole(value: SupportsIndex | float, what: str) -> int:
    """Take a whole number, also as a float such as ``1e6``; anything else is a `SimulationError`."""
    if isinstance(value, (float, np.floating)):
        if value.is_integer():
            return int(value)
    else:
        with suppress(TypeError):
            return operator.index(value)
    raise SimulationError(f"{what} is a whole number, not {value!r}")


def within(value: SupportsIndex | float, what: str, least: int, most: int) -> int:
    """Take a whole number of `least` to `most`; anything else is a `SimulationError`."""
    number = whole(value, what)
    if not least <= number <= most:
        raise SimulationError(f"{what} is {least} to {most}, not {number}")
    return number


def checked_group(ranks: Iterable[int]) -> tuple[int, ...]:
    """Take at least one rank, and each once; anything else is a `SimulationError`."""
    try:
        members = tuple(ranks)
    except TypeError:
        raise SimulationError(f"a group is several ranks, such as range(8), not {ranks!r}") from None
    group = tuple(whole(rank, "a rank") for rank in members)
    if len(set(group)) != len(group) or not group:
        raise SimulationError(f"a group needs at least one rank and each rank once, not {list(group)}")
    return group


def checked_port(port: int) -> int:
    """Take the number of a port; anything else is a `SimulationError`."""
    return within(port, "a port", 0, _LAST_PORT)


def checked_latency(latency: int) -> int:
    """Take a latency of 0 ps or more; anything else is a `SimulationError`."""
    number = whole(latency, "a latency in ps")
    if number < 0:
        raise SimulationError(f"a latency of {number} ps would deliver before it is sent; it must be 0 or more")
    return number


def checked_weight(weight: float, engine: str) -> float:
    """Take a weight above 0, which for the packet engine is 1; anything else is a `SimulationError`."""
    number = isinstance(weight, (int, float, np.integer, np.floating))
    if not (number and 0 < weight <= sys.float_info.max):
        raise SimulationError(f"a weight of {weight!r} gives no share; it must be a number above 0")
    if engine != "flow" and weight != 1:
        msg = f'a weight of {weight!r} has no effect in the packet engine: leave it out, or set engine = "flow"'
        raise SimulationError(msg)
    return float(weight)


def checked_size(size: int, what: str) -> int:
    """Take a size of 1 byte to 8 PiB; anything else is a `SimulationError`."""
    number = whole(size, f"the size of {what}, in bytes,")
    if number < 1:
        raise SimulationError(f"{what} of {number} bytes moves nothing: it has at least 1 byte")
    if number > _LARGEST:
        raise SimulationError(f"{what} of {number} bytes is too large: at most 2**53 bytes (8 PiB)")
    return number


def checked_messages(matrix: NDArray[np.void]) -> NDArray[np.void]:
    """Take records with source, target, bytes and start, whole numbers all; anything else is a `SimulationError`."""
    wanted = "many messages are one array of records with source, target, bytes and start"
    names = getattr(getattr(matrix, "dtype", None), "names", None) or ()
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 1 or not names:
        raise SimulationError(f"{wanted}, not {matrix!r:.80}")
    if lacking := [name for name in _SENT.names or () if name not in names]:
        raise SimulationError(f"{wanted}; these lack {', '.join(lacking)}")
    taken = np.zeros(len(matrix), _SENT)
    for name in _SENT.names or ():
        each = f"{name} of a message"
        column = matrix[name]
        if column.ndim != 1:
            raise SimulationError(f"{wanted}; these have several values of {name} in each")
        try:
            taken[name] = column if column.dtype.kind == "i" else [whole(value, each) for value in column.tolist()]
        except OverflowError as error:
            raise SimulationError(f"{each} is above 2**63 - 1") from error
    for size in set(taken["bytes"].tolist()):
        checked_size(size, "a transfer")
    if len(taken) and (earliest := int(taken["start"].min())) < 0:
        msg = f"a message that starts {-earliest} ps ago would have been sent already; start is 0 ps from now or more"
        raise SimulationError(msg)
    return taken


def checked_ports(ports: Sequence[int] | None, messages: int) -> list[int]:
    """Take a port for each message, 0 if left out; anything else is a `SimulationError`."""
    if ports is None:
        return [0] * messages
    try:
        found = [checked_port(port) for port in ports]
    except TypeError:
        found = []
    if len(found) != messages:
        raise SimulationError(f"ports are one for each of {messages} messages, not {ports!r:.80}; leave them out for 0")
    return found


def checked_name(name: str) -> str:
    """Take the name of a part of the fabric; anything else is a `SimulationError`."""
    if not isinstance(name, str):
        raise SimulationError(f'what fails has a name, such as "leaf0-spine1", "host3" or "gpu24", and is not {name!r}')
    return name


def checked_rate(rate: float | str, name: str) -> float:
    """Take a rate in bytes/s, or such as ``"25Gbps"``; anything else is a `SimulationError`."""
    try:
        value = float(parse(rate, RATE)) if isinstance(rate, str) else float(rate)
    except (TypeError, ValueError, OverflowError) as error:
        raise SimulationError(f"a rate of {rate!r}: {error}") from error
    if not value > 0 or value == float("inf"):
        msg = f"a rate of {rate} bytes/s would have nothing arrive: give one above 0, or fail({name!r})"
        raise SimulationError(msg)
    return value


def checked_loss(bit_error_rate: float) -> float:
    """Take a share of wrong bits; anything else is a `SimulationError`."""
    number = isinstance(bit_error_rate, (int, float, np.integer, np.floating))
    if not (number and 0 <= bit_error_rate < 1):
        raise SimulationError(f"a bit error rate of {bit_error_rate!r}: give the share of wrong bits, such as 1e-9")
    return float(bit_error_rate)


def checked_program(program: object, kind: type) -> None:
    """Refuse what is no program by a `SimulationError`."""
    if not isinstance(program, kind):
        msg = f"a program is what fabricsim.program gives, not {program!r:.80}: replay that of a scenario or trace"
        raise SimulationError(msg)
