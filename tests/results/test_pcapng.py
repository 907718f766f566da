from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fabricsim.errors import ResultError
from fabricsim.records.packet import ACK, AGAIN, CNP, DATA, DROPPED, MARKED, NACK, SENT, TRIMMED
from fabricsim.results import pcapng
from fabricsim.results.packets import ENTRY, PacketLog

PS = 1000  # per nanosecond
NUMBERS = {"tcp": (1448, 90), "roce": (4096, 82), "infiniband": (4096, 30), "uet": (4096, 64)}


def log(protocol: str, *rows: tuple[int, int, int, int, int, int, int]) -> PacketLog:
    """Make a log of one flow, 3 to 5, on two wires: time (ns), wire, number, payload, kind, state, fate."""
    payload, overhead = NUMBERS[protocol]
    entries = np.zeros(len(rows), ENTRY)
    for entry, (time, wire, number, carried, kind, state, fate) in zip(entries, rows, strict=True):
        size = carried + overhead if kind == DATA else 64
        entry["time"], entry["wire"], entry["number"], entry["bytes"] = time * PS, wire, number, size
        entry["kind"], entry["state"], entry["fate"] = kind, state, fate
    ends = np.array([3], np.int32), np.array([5], np.int32)
    return PacketLog(entries, ("a->b", "b->a"), *ends, payload, overhead, protocol, ecn=protocol == "tcp")


# ---- a reader by the specification --------------------------------------------------------------


class Block(NamedTuple):
    """Type of a block, its fixed part, and its options."""

    kind: int
    body: bytes
    options: dict[int, bytes]


FIXED = {0x0A0D0D0A: 16, 1: 8, 5: 12}


def blocks(image: bytes) -> list[Block]:
    """Cut a little-endian file into blocks; lengths stand at both ends and are multiples of 4."""
    found, place = [], 0
    while place < len(image):
        kind, length = struct.unpack_from("<II", image, place)
        assert length % 4 == 0
        assert struct.unpack_from("<I", image, place + length - 4)[0] == length
        body = image[place + 8 : place + length - 4]
        fixed = FIXED[kind] if kind in FIXED else 20 + -(-struct.unpack_from("<I", body, 12)[0] // 4) * 4
        found.append(Block(kind, body[:fixed], options(body[fixed:])))
        place += length
    return found


def options(data: bytes) -> dict[int, bytes]:
    found, place = {}, 0
    while place < len(data):
        code, length = struct.unpack_from("<HH", data, place)
        if code == 0:
            assert (length, place + 4) == (0, len(data))
            break
        found[code] = data[place + 4 : place + 4 + length]
        place += 4 + -(-length // 4) * 4
    return found


def packets(protocol: str, *rows: tuple[int, int, int, int, int, int, int]) -> list[tuple[bytes, int]]:
    """Give the captured bytes of each packet and its original length."""
    found = []
    for block in blocks(pcapng.image(log(protocol, *rows))):
        if block.kind == 6:
            captured, length = struct.unpack_from("<II", block.body, 12)
            found.append((block.body[20 : 20 + captured], length))
    return found


# ---- blocks -------------------------------------------------------------------------------------


def test_file_is_a_section_interfaces_packets_and_statistics() -> None:
    rows = [
        (1500, 0, 0, 1448, DATA, 0, SENT),
        (2**33 + 7, 1, 1, 0, ACK, 0, SENT),
        (2**33 + 9, 0, 1, 9, DATA, 0, DROPPED),
    ]
    section, first, second, data, ack, sent, answered = blocks(pcapng.image(log("tcp", *rows)))

    assert (section.kind, section.body) == (0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    for interface, name in ((first, b"a->b"), (second, b"b->a")):
        assert interface.kind == 1
        assert struct.unpack("<HHI", interface.body) == (1, 0, 128)  # Ethernet
        assert interface.options == {2: name, 9: b"\x09"}  # if_name, if_tsresol: nanoseconds
    wires, high, low = struct.unpack_from("<III", data.body)
    assert (data.kind, wires, high, low) == (6, 0, 0, 1500)
    assert struct.unpack_from("<III", ack.body) == (1, 2, 7)
    for statistics, wire, received, dropped in ((sent, 0, 1, 1), (answered, 1, 1, 0)):
        assert statistics.kind == 5
        assert struct.unpack_from("<I", statistics.body)[0] == wire
        assert statistics.options == {4: struct.pack("<Q", received), 5: struct.pack("<Q", dropped)}


def test_what_was_sent_again_or_trimmed_says_so() -> None:
    image = pcapng.image(log("tcp", (1, 0, 0, 9, DATA, AGAIN, SENT), (2, 0, 0, 9, DATA, TRIMMED, SENT)))

    assert [block.options for block in blocks(image) if block.kind == 6] == [{1: b"sent again"}, {1: b"trimmed"}]


def test_empty_log_is_a_file_too() -> None:
    assert [block.kind for block in blocks(pcapng.image(log("roce")))] == [0x0A0D0D0A, 1, 1, 5, 5]


# ---- headers ------------------------------------------------------------------------------------


def internet(frame: bytes) -> dict[str, object]:
    """Fields of an IPv4 header (RFC 791) behind an Ethernet header; its checksum must be right."""
    assert frame[12:14] == b"\x08\x00"
    header = frame[14:34]
    total = sum(struct.unpack(">10H", header))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
    _, codepoint, length, _, _, _, protocol, _, source, target = struct.unpack(">BBHHHBBHII", header)
    return {"ecn": codepoint & 3, "length": length, "protocol": protocol, "source": source, "target": target}


def test_tcp_counts_bytes_and_echoes_marks() -> None:
    data, tail, ack = packets(
        "tcp", (1, 0, 0, 1448, DATA, 0, SENT), (2, 0, 1, 100, DATA, MARKED, SENT), (3, 1, 2, 0, ACK, MARKED, SENT)
    )

    for (frame, length), payload, ecn, sequence in (
        (data, 1448, 2, 1),
        (tail, 100, 3, 1449),
    ):  # ECT(0) and CE, RFC 3168
        assert (len(frame), length) == (14 + 20 + 20, 14 + 20 + 20 + payload)
        found = internet(frame)
        assert found == {"ecn": ecn, "length": 40 + payload, "protocol": 6, "source": 0x0A000004, "target": 0x0A000006}
        assert struct.unpack_from(">II", frame, 38) == (sequence, 1)
        assert frame[46:48] == b"\x50\x10"  # five words, ACK
    frame, length = ack
    assert (len(frame), length) == (54, 54)
    assert internet(frame) == {"ecn": 0, "length": 40, "protocol": 6, "source": 0x0A000006, "target": 0x0A000004}
    assert struct.unpack_from(">II", frame, 38) == (1, 1 + 1448 + 100)
    assert frame[47] == 0x10 | 0x40  # ACK and ECE


def base_transport(header: bytes) -> tuple[int, int, int, int]:
    """Give opcode, pad count, notice bits and packet number (IBTA, base transport header)."""
    opcode, flags, key, pair, number = struct.unpack_from(">BBHII", header)
    assert (key, pair & 0xFFFFFF) == (0xFFFF, 1)
    return opcode, flags >> 4 & 3, pair >> 24, number


def test_roce_is_udp_4791_with_a_base_transport_header() -> None:
    data, tail, ack, nack, notice = packets(
        "roce",
        (1, 0, 7, 4096, DATA, MARKED, SENT),
        (2, 0, 8, 5, DATA, 0, SENT),
        (3, 1, 8, 0, ACK, 0, SENT),
        (4, 1, 8, 0, NACK, 0, SENT),
        (5, 1, 8, 0, CNP, 0, SENT),
    )

    for (frame, length), payload, pad, number in ((data, 4096, 0, 7), (tail, 5, 3, 8)):
        assert length == 14 + 20 + 8 + 12 + payload + pad + 4  # behind the payload a CRC of 4 bytes
        assert struct.unpack_from(">HHH", frame, 34)[1:] == (4791, 8 + 12 + payload + pad + 4)
        assert base_transport(frame[42:]) == (0x07, pad, 0, number)
    assert internet(data[0])["ecn"] == 3
    assert base_transport(ack[0][42:]) == (0x11, 0, 0, 7)  # the last packet that came
    assert base_transport(nack[0][42:]) == (0x11, 0, 0, 8)  # the one that is missing
    assert [frame[54] >> 5 for frame, _ in (ack, nack)] == [0, 3]  # acknowledge; negative acknowledge
    assert base_transport(notice[0][42:]) == (0x81, 0, 0x40, 0)  # BECN
    assert notice[1] == 14 + 20 + 8 + 12 + 16 + 4


def test_infiniband_begins_with_the_local_route_header() -> None:
    ((frame, length),) = packets("infiniband", (1, 0, 3, 4096, DATA, 0, SENT))
    lane, next_header, target, words, source = struct.unpack_from(">BBHHH", frame)

    assert (lane, next_header, target, source) == (0, 2, 6, 4)
    assert length == 8 + 12 + 4096 + 4
    assert words * 4 == length
    assert base_transport(frame[8:]) == (0x07, 0, 0, 3)
    (interface, *_) = [block for block in blocks(pcapng.image(log("infiniband"))) if block.kind == 1]
    assert struct.unpack_from("<H", interface.body) == (247,)


def test_ultra_ethernet_is_udp_4793() -> None:
    ((frame, length),) = packets("uet", (1, 0, 3, 4096, DATA, 0, SENT))

    assert struct.unpack_from(">HHH", frame, 34)[1:] == (4793, 8 + 4096)
    assert length == 14 + 20 + 8 + 4096


# ---- files --------------------------------------------------------------------------------------


def test_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be written"):
        pcapng.write(log("tcp"), tmp_path / "missing" / "x.pcapng")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("capinfos") is None, reason="capinfos of Wireshark is not installed")
@pytest.mark.parametrize("protocol", NUMBERS)
def test_wireshark_reads_it(tmp_path: Path, protocol: str) -> None:
    path = tmp_path / "x.pcapng"
    pcapng.write(log(protocol, (1, 0, 0, 1448, DATA, 0, SENT), (2, 1, 1, 0, ACK, 0, SENT)), path)
    command = [shutil.which("capinfos") or "", "-Mc", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  our own file

    assert told.stdout.split()[-1] == "2"
