"""The packets of a run as a capture that Wireshark opens: pcapng, one interface per wire.

Block types, options and their padding are those of the IETF draft "PCAP Now Generic (pcapng) Capture File Format"
(draft-ietf-opsawg-pcapng). Headers are made up from what the engine knows: endpoints, numbers, marks, acknowledgements.
Payloads are cut off; the original length of each frame is kept.
"""

import struct
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricsim.errors import ResultError
from fabricsim.files.atomic import whole
from fabricsim.records.packet import ACK, AGAIN, CNP, DATA, MARKED, NACK, SENT, TRIMMED
from fabricsim.results.packets import PacketLog
from fabricsim.units import PS_PER_NS

ETHERNET = 1
"""LINKTYPE_ETHERNET."""
INFINIBAND = 247
"""LINKTYPE_INFINIBAND: frames begin with the local route header."""
SNAP = 128
"""Bytes of a frame that are kept at most; headers are shorter."""

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_BYTE_ORDER = 0x1A2B3C4D
_END, _COMMENT, _NAME, _RESOLUTION, _RECEIVED, _DROPPED = 0, 1, 2, 9, 4, 5
_APPLICATION = 4
_NANOSECONDS = 9  # if_tsresol: ten to the minus nine seconds

_ROCE_PORT, _UET_PORT = 4791, 4793  # IANA: roce-v2, and Ultra Ethernet Transport
_FIRST_PORT = 49152  # IANA: the first dynamic one
_TCP, _UDP = 6, 17
_ECT, _CE = 2, 3  # RFC 3168: codepoints 10 and 11
_TCP_ACK, _TCP_ECE = 0x10, 0x40
# opcodes of the base transport header (IBTA): reliable connection, RDMA WRITE middle; acknowledge; RoCEv2 CNP
_WRITE, _ACKNOWLEDGE, _NOTIFY = 0x07, 0x11, 0x81
_BECN = 0x40
_SYNDROME = {ACK: 0x1F, NACK: 0x60}  # without credit limit; PSN sequence error
_CHECK = 4  # bytes of the invariant CRC behind the payload


class _Entry(NamedTuple):
    """A record of the log: plain numbers, which are read much faster than fields of a NumPy record."""

    time: int
    wire: int
    flow: int
    number: int
    echo: int
    size: int
    kind: int
    state: int
    fate: int


def write(log: PacketLog, path: Path) -> None:
    """Write a packet log as a capture file.

    A packet is at the time at which its first bit leaves, cut to nanoseconds. What was dropped or lost is counted in
    the statistics of its wire and not shown. Packets that were trimmed or sent again carry a comment.

    `path`: file to write; one of that name is replaced.
    Raises ResultError if the file cannot be written; nothing is left then.
    """
    with whole(path, "name a folder that exists and has room", ResultError) as part:
        part.write_bytes(image(log))


def image(log: PacketLog) -> bytes:
    """Give the bytes of the capture file."""
    blocks = [_section()]
    link_type = INFINIBAND if log.protocol == "infiniband" else ETHERNET
    blocks += [_interface(name, link_type) for name in log.wires]
    offsets = _offsets(log)
    entries = log.entries
    sent = entries["fate"] == SENT
    for row in entries[sent].tolist():
        entry = _Entry(*row)
        header, length = _frame(log, entry, offsets)
        blocks.append(_packet(entry, header, length))
    end = int(entries["time"].max(initial=0)) // PS_PER_NS
    for wire in range(len(log.wires)):
        mine = entries["wire"] == wire
        blocks.append(_statistics(wire, end, int((mine & sent).sum()), int((mine & ~sent).sum())))
    return b"".join(blocks)


# ---- blocks -------------------------------------------------------------------------------------


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _section() -> bytes:
    application = _option(_APPLICATION, b"fabricsim") + _option(_END, b"")
    return _block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1) + application)


def _interface(name: str, link_type: int) -> bytes:
    options = _option(_NAME, name.encode()) + _option(_RESOLUTION, bytes([_NANOSECONDS])) + _option(_END, b"")
    return _block(_INTERFACE, struct.pack("<HHI", link_type, 0, SNAP) + options)


def _packet(entry: _Entry, header: bytes, length: int) -> bytes:
    time = entry.time // PS_PER_NS
    body = struct.pack("<IIIII", entry.wire, time >> 32, time & 0xFFFFFFFF, len(header), length)
    return _block(_PACKET, body + _padded(header) + _comment(entry.state if entry.kind == DATA else 0))


def _comment(state: int) -> bytes:
    words = [word for bit, word in ((AGAIN, "sent again"), (TRIMMED, "trimmed")) if state & bit]
    return _option(_COMMENT, ", ".join(words).encode()) + _option(_END, b"") if words else b""


def _statistics(wire: int, time: int, received: int, dropped: int) -> bytes:
    options = _option(_RECEIVED, struct.pack("<Q", received)) + _option(_DROPPED, struct.pack("<Q", dropped))
    body = struct.pack("<III", wire, time >> 32, time & 0xFFFFFFFF) + options + _option(_END, b"")
    return _block(_STATISTICS, body)


# ---- frames -------------------------------------------------------------------------------------


def _offsets(log: PacketLog) -> list[NDArray[np.int64]]:
    """Bytes of each flow before each of its packets; a packet that was not seen counts as a full one."""
    entries = log.entries
    order = np.argsort(entries["flow"], kind="stable")
    cuts = np.searchsorted(entries["flow"][order], np.arange(len(log.source) + 1))
    return [_flow_offsets(log, entries[order[begin:end]]) for begin, end in pairwise(cuts.tolist())]


def _flow_offsets(log: PacketLog, entries: NDArray[np.void]) -> NDArray[np.int64]:
    sizes = np.full(int(entries["number"].max(initial=0)) + 1, log.payload, np.int64)
    data = entries[(entries["kind"] == DATA) & (entries["state"] & TRIMMED == 0)]
    sizes[data["number"]] = data["bytes"] - log.overhead
    return np.concatenate([[0], np.cumsum(sizes)])


def _frame(log: PacketLog, entry: _Entry, offsets: list[NDArray[np.int64]]) -> tuple[bytes, int]:
    """Give the headers of a packet, and the length of the whole frame."""
    flow, kind = entry.flow, entry.kind
    ends = int(log.source[flow]), int(log.target[flow])
    source, target = ends if kind == DATA else ends[::-1]
    whole = kind == DATA and not entry.state & TRIMMED
    payload = max(entry.size - log.overhead, 0) if whole else 0
    if log.protocol == "infiniband":
        header = _transport_header(entry, flow, -payload % 4)
        length = 8 + len(header) + payload + -payload % 4 + _CHECK
        return _local_route(source, target, length) + header, length
    if log.protocol == "tcp":
        body, behind, protocol = _tcp_header(entry, flow, offsets[flow]), payload, _TCP
    else:
        above = _transport_header(entry, flow, -payload % 4) if log.protocol == "roce" else b""
        behind, protocol = payload + (-payload % 4 + _CHECK if above else 0), _UDP
        port = _ROCE_PORT if above else _UET_PORT
        body = struct.pack(">HHHH", _port(flow), port, 8 + len(above) + behind, 0) + above
    length = 20 + len(body) + behind
    marked = bool(entry.state & MARKED) and kind == DATA
    codepoint = _CE if marked else _ECT if log.ecn and kind == DATA else 0
    return _ethernet(source, target) + _internet(source, target, protocol, length, codepoint) + body, 14 + length


def _ethernet(source: int, target: int) -> bytes:
    # locally administered addresses
    return b"\x02\x00" + struct.pack(">I", target) + b"\x02\x00" + struct.pack(">I", source) + b"\x08\x00"


def _internet(source: int, target: int, protocol: int, length: int, codepoint: int) -> bytes:
    first, second = (struct.pack(">I", 0x0A000001 + end) for end in (source, target))
    header = struct.pack(">BBHHHBBH", 0x45, codepoint, length & 0xFFFF, 0, 0x4000, 64, protocol, 0) + first + second
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return header[:10] + struct.pack(">H", check) + header[12:]


def _port(flow: int) -> int:
    return _FIRST_PORT + flow % (65536 - _FIRST_PORT)


def _tcp_header(entry: _Entry, flow: int, offsets: NDArray[np.int64]) -> bytes:
    """Sequence numbers count bytes from 1, as Wireshark shows them; the data sender acknowledges nothing."""
    place = (1 + int(offsets[entry.number])) & 0xFFFFFFFF
    if entry.kind == DATA:
        return struct.pack(">HHIIBBHHH", _port(flow), _port(flow), place, 1, 5 << 4, _TCP_ACK, 0xFFFF, 0, 0)
    echo = _TCP_ECE if entry.state & MARKED else 0
    return struct.pack(">HHIIBBHHH", _port(flow), _port(flow), 1, place, 5 << 4, _TCP_ACK | echo, 0xFFFF, 0, 0)


def _transport_header(entry: _Entry, flow: int, pad: int) -> bytes:
    """Make the base transport header, and what follows it on acknowledgements and CNPs."""
    kind, number = entry.kind, entry.number
    if kind == DATA:
        return _base(_WRITE, number, flow, pad=pad)
    if kind == CNP:
        return _base(_NOTIFY, 0, flow, notice=_BECN) + bytes(16)
    # an ACK names the last packet that arrived in order, a NACK the one that is missing
    answered = number if kind == NACK else number - 1
    return _base(_ACKNOWLEDGE, answered, flow) + struct.pack(">I", _SYNDROME[kind] << 24)


def _base(opcode: int, number: int, flow: int, *, notice: int = 0, pad: int = 0) -> bytes:
    pair = (flow + 1) & 0xFFFFFF
    return struct.pack(">BBHII", opcode, pad << 4, 0xFFFF, notice << 24 | pair, number & 0xFFFFFF)


def _local_route(source: int, target: int, length: int) -> bytes:
    """Local route header: lane 0, followed by a base transport header; length in words of 4 bytes."""
    return struct.pack(">BBHHH", 0, 2, (target + 1) & 0xFFFF, -(-length // 4) & 0x7FF, (source + 1) & 0xFFFF)
