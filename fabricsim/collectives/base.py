"""Templates: what each member of a collective does, in rounds of steps.

A template says nothing of sizes, ranks or routes; it is made once per algorithm and group size and
shared by all calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricsim.records.program import NONE, STEP

NETWORK = -1
"""In `Template.switches`: the first switch of the network; the next is one less."""


@dataclass(frozen=True)
class Group:
    """Where the members of a collective are.

    `hosts`: host of each member; hosts are counted from 0 in the order of their first members.
    `leaves`: first switch of the network that each member reaches, counted likewise.
    """

    hosts: tuple[int, ...]
    leaves: tuple[int, ...]

    @property
    def on_host(self) -> list[list[int]]:
        """Members of each host in their order."""
        members: list[list[int]] = [[] for _ in range(max(self.hosts) + 1)]
        for member, host in enumerate(self.hosts):
            members[host].append(member)
        return members


def counted(names: Sequence[int]) -> tuple[int, ...]:
    """Count names in the order in which they first appear."""
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return tuple(number[name] for name in names)


@dataclass(frozen=True)
class Template:
    """A collective algorithm for one group.

    Lanes are numbered by strand and member: lane ``s * members + m`` is strand ``s`` of member ``m``; those of
    switches come last. All lanes of a member work on the same buffer.

    Attributes
    ----------
    scripts
        ``STEP`` arrays: one for all lanes, or one per lane.
    relative
        Whether a step's shards are counted from the member's own number, modulo `shards`.
    members
        Group size.
    shards
        Equal parts of a round's buffer.
    connections
        Receiving lane and its inbox of each outgoing connection, shape ``(lanes, c, 2)``; ``-1`` if there is none.
    sources
        Sending lane of each inbox, shape ``(lanes, inboxes)``; ``-1`` if there is none.
    strands
        Lanes per member.
    switches
        Of each switch's lane the number of its host in the group, or `NETWORK` less the number of a switch of
        the network: as in `Group.leaves`, the root after them.
    scratch
        Further shards of each buffer that hold neither input nor output, each as long as the shard of the same
        number modulo `shards`.
    out_of_place
        Whether messages are received into another buffer than they are sent from, so that either may come first.

    Notes
    -----
    Every message that a script sends must be waited for by its receiver: a call gives its lanes back
    when all scripts are through.
    """

    scripts: tuple[NDArray[np.void], ...]
    relative: bool
    members: int
    shards: int
    connections: NDArray[np.int32]
    sources: NDArray[np.int32]
    strands: int = 1
    switches: tuple[int, ...] = ()
    scratch: int = 0
    out_of_place: bool = False

    @property
    def slots(self) -> int:
        """Shards of a buffer, scratch included."""
        return self.shards + self.scratch

    @property
    def lanes(self) -> int:
        """Scripts that run side by side on each channel."""
        return self.members * self.strands + len(self.switches)

    def script(self, lane: int) -> NDArray[np.void]:
        """``STEP`` array of a lane."""
        return self.scripts[0 if len(self.scripts) == 1 else lane]

    def owner(self, lane: int) -> int:
        """Whose buffer a lane works on: a member, or ``members + i`` for switch ``i``."""
        of_members = self.members * self.strands
        return lane % self.members if lane < of_members else lane - of_members + self.members

    def shares(self) -> NDArray[np.float64]:
        """Share of the buffer that goes over each connection, shape ``(lanes, c)``."""
        carried = np.zeros(self.connections.shape[:2])
        for lane in range(1 if len(self.scripts) == 1 else self.lanes):
            sends = self.script(lane)
            sends = sends[sends["send"] >= 0]
            np.add.at(carried[lane], sends["send"], sends["shards"] / self.shards)
        return carried if len(self.scripts) > 1 else np.repeat(carried[:1], self.lanes, axis=0)


def steps(count: int) -> NDArray[np.void]:
    """Make a script of `count` steps that neither receive nor send; whoever makes it fills in the rest."""
    table = np.zeros(count, STEP)
    table["wait"] = table["send"] = NONE
    table["shards"] = 1
    return table


def script(
    rows: Sequence[tuple[bool, int | None]], into: Sequence[int] | None = None, reducing: int = 0
) -> NDArray[np.void]:
    """Make a script over inbox 0 and connection 0.

    `rows`: per step: whether to receive first, and the shard to send then, or None to send nothing.
    `into`: per step the shard that is received; by default the one that is sent.
    `reducing`: steps at the beginning whose shard is reduced, not copied.
    """
    table = steps(len(rows))
    received = np.cumsum([receive for receive, _ in rows])
    for number, (step, (receive, shard)) in enumerate(zip(table, rows, strict=True)):
        step["wait"] = 0 if receive else NONE
        step["needed"] = received[number]
        step["per_turn"] = received[-1]
        step["send"] = NONE if shard is None else 0
        step["shard"] = 0 if shard is None else shard
        step["into"] = step["shard"] if into is None else into[number]
        step["reduce"] = receive and number < reducing
    return table


def ring_neighbours(members: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Connect a ring: member ``i`` sends to ``i + 1`` and receives from ``i - 1``.

    Returns: ``connections`` and ``sources`` of a `Template`.
    """
    own = np.arange(members)
    connections = np.zeros((members, 1, 2), np.int32)
    connections[:, 0, 0] = (own + 1) % members
    sources = ((own - 1) % members).astype(np.int32).reshape(members, 1)
    return connections, sources


def alone(shards: int = 1) -> Template:
    """Make the template of a group of one, which has nothing to do."""
    nobody = np.full((1, 1, 2), NONE, np.int32)
    return Template((steps(0),), relative=False, members=1, shards=shards, connections=nobody, sources=nobody[:, :, 0])


def sending_ahead(
    table: NDArray[np.void], connections: NDArray[np.int32], sources: NDArray[np.int32], *, relative: bool, shards: int
) -> Template:
    """Make the template of members that send and receive side by side, with what one member does one after the other.

    A group of sends and receives is such a thing in NCCL: warps of their own send, others receive, and a sender is
    ahead of its receiver by as much as the FIFO holds (``src/device/sendrecv.h``).

    `table`: ``STEP`` array of a member.
    `connections`, `sources`: of the members, as `ring_neighbours` returns them.
    """
    sends, receives = table[table["send"] >= 0].copy(), table[table["wait"] >= 0].copy()
    sends["wait"], receives["send"] = NONE, NONE
    receiving = connections.copy()
    receiving[:, :, 0] += np.int32(len(connections))  # the second strand
    nothing = np.full_like(connections, NONE)
    return Template(
        (sends,) * len(connections) + (receives,) * len(connections),
        relative=relative,
        members=len(connections),
        shards=shards,
        connections=np.concatenate([receiving, nothing]),
        sources=np.concatenate([np.full_like(sources, NONE), sources]),
        strands=2,
        out_of_place=True,
    )
