"""PCI Express: what a payload byte costs on each direction of a link.

A link direction is a resource whose capacity is the rate left for transaction-layer packets; a
transfer costs its payload and its headers, and a read costs request packets on the way back. The
form of the model is that of Neugebauer et al., "Understanding PCIe performance for end host
networking", SIGCOMM 2018, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fabricsim.scenario.cluster import Pcie

# Signalling rate per lane in transfers/s and line code, PCI Express Base Specification.
_LANE_BITS = {1: 2.5e9 * 8 / 10, 2: 5e9 * 8 / 10, 3: 8e9 * 128 / 130, 4: 16e9 * 128 / 130, 5: 32e9 * 128 / 130}
_LANE_BITS[6] = 64e9 * 242 / 256

DATA_LINK_SHARE = 57.88 / 62.96
"""Share of the raw rate left after acknowledgement and credit packets: Gen 3 x8, Neugebauer et al. section 3."""
_WRITE_HEADER = 24  # memory write or read request with a 64-bit address: framing, sequence, header, LCRC; bytes
_COMPLETION_HEADER = 20  # completion with data, bytes
_GPU_ACCESS = 128  # a warp's coalesced access is one 128 B line (Min et al., EMOGI, VLDB 2021)
_DMA_PAYLOAD = 256  # common maximum payload size of NICs and root ports, bytes
_DMA_READ_REQUEST = 512  # common maximum read request size of NICs, bytes


class Cost(NamedTuple):
    """Units per payload byte: towards the root complex (`up`) and away from it (`down`)."""

    up: float
    down: float


GPU_STORE = Cost(up=1 + _WRITE_HEADER / _GPU_ACCESS, down=0.0)
"""A GPU kernel writes to host memory."""
GPU_LOAD = Cost(up=_WRITE_HEADER / _GPU_ACCESS, down=1 + _COMPLETION_HEADER / _GPU_ACCESS)
"""A GPU kernel reads from host memory."""
DMA_WRITE = Cost(up=1 + _WRITE_HEADER / _DMA_PAYLOAD, down=0.0)
"""A NIC writes to memory above it."""
DMA_READ = Cost(up=_WRITE_HEADER / _DMA_READ_REQUEST, down=1 + _COMPLETION_HEADER / _DMA_PAYLOAD)
"""A NIC reads from memory above it."""


def mirrored(cost: Cost) -> Cost:
    """Turn a cost round: a peer-to-peer access on the link of the device that is accessed."""
    return Cost(up=cost.down, down=cost.up)


def capacity(link: Pcie) -> float:
    """Bytes per second of transaction-layer packets in one direction."""
    return _LANE_BITS[link.generation] * link.lanes / 8 * DATA_LINK_SHARE
