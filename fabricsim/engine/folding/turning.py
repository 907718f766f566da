"""Templates whose members all do the same, and what they are with fewer members that stand for the others.

Members do the same if the template stays what it is as they change places in a circle: each sends as much to those at
the same distances, at the same steps. A switch among them stays where it is. It has to receive from all in a row, or
to send to all in a row, so that those of members who are alike come, and go, at one instant; then it may as well
receive from one of them, and send to that one.

Which shards a step is about does not matter: they are of one size, or the members are told apart (`fold`).
"""

from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fabricsim.collectives.base import Template
from fabricsim.records.program import NONE, STEP

_TIMED = [name for name in STEP.names or () if name not in {"shard", "into"}]


def used_by(made: Template) -> NDArray[np.bool_]:
    """Tell which connections carry something, shape ``(lanes, c)``: a chain's last member sends nothing."""
    used = np.zeros(made.connections.shape[:2], bool)
    for lane in range(made.lanes):
        sends = made.script(lane)["send"]
        used[lane, sends[sends >= 0]] = True
    return used


def turns(made: Template) -> bool:
    """Whether all members of a template do the same, by strand, with partners at the same distances."""
    of_members = made.members * made.strands
    receivers, inboxes = made.connections[:, :, 0].astype(np.int64), made.connections[:, :, 1]
    strand, number = np.divmod(receivers, made.members)
    turned = strand * made.members + (number - np.arange(made.lanes)[:, None]) % made.members
    at_switch, used = receivers >= of_members, used_by(made)
    if min(made.switches, default=0) < 0 or np.any((at_switch & used)[of_members:]):
        return False  # what hosts send to switches of the network takes them time; trees of switches have a root
    where = np.where(at_switch, receivers, turned), np.where(at_switch, NONE, inboxes)
    columns = [np.where(used, column, NONE)[:of_members].reshape(made.strands, made.members, -1) for column in where]
    return (
        all(np.all(column == column[:, :1]) for column in columns)
        and all(_alike(made, lane, lane - lane % made.members) for lane in range(of_members))
        and all(_in_rows(made, lane) for lane in range(of_members, made.lanes))
    )


def _alike(made: Template, lane: int, other: int) -> bool:
    """Whether two lanes go through steps that take as long."""
    one, two = made.script(lane), made.script(other)
    return one is two or (len(one) == len(two) and all(np.array_equal(one[name], two[name]) for name in _TIMED))


def _in_rows(made: Template, switch: int) -> bool:
    """Whether a switch receives from all members in a row, and sends to all in a row."""
    rows: list[tuple[tuple[int, ...], int]] = []
    for step in made.script(switch):
        if step["wait"] >= 0:
            strand, member = divmod(int(made.sources[switch, step["wait"]]), made.members)
            rows.append(((0, strand, *(int(step[name]) for name in ("needed", "per_turn", "reduce"))), member))
        if step["send"] >= 0:
            receiver, inbox = made.connections[switch, step["send"]].tolist()
            strand, member = divmod(receiver, made.members)
            rows.append(((1, strand, inbox, *(int(step[name]) for name in ("shards", "run", "every"))), member))
    each = list(range(made.members))
    return all(sorted(member for _, member in row) == each for _, row in groupby(rows, lambda row: row[0]))


def kept(made: Template, members: int) -> NDArray[np.int64]:
    """List the lanes of a template's first members, and those of its switches."""
    every = np.arange(made.lanes)
    return every[(every % made.members < members) | (every >= made.members * made.strands)]


def fewer(made: Template, members: int) -> Template:
    """Let the first members of a template stand for the others, who do the same as they come again."""
    lanes = kept(made, members)
    connections, sources = made.connections[lanes], made.sources[lanes]
    scripts = made.scripts
    if len(scripts) > 1:
        scripts = tuple(
            made.script(lane) if lane < made.members * made.strands else _served(made, lane, members) for lane in lanes
        )
    connections[:, :, 0] = _renumbered(connections[:, :, 0], made, members)
    return replace(
        made, scripts=scripts, members=members, connections=connections, sources=_renumbered(sources, made, members)
    )


def _renumbered(lanes: NDArray[np.int32], made: Template, members: int) -> NDArray[np.int32]:
    """Give lanes the numbers that they have where each strand has fewer members, who stand for the others."""
    strand, member = np.divmod(lanes, made.members)
    switch = lanes - made.members * made.strands
    number = np.where(switch < 0, strand * members + member % members, members * made.strands + switch)
    return np.where(lanes < 0, lanes, number).astype(np.int32)


def _served(made: Template, switch: int, members: int) -> NDArray[np.void]:
    """Give what a switch does for some members alone."""
    script = made.script(switch).copy()
    others = made.sources[switch, script["wait"]] % made.members >= members
    script["wait"][others] = NONE
    others = made.connections[switch, script["send"], 0] % made.members >= members
    script["send"][others] = NONE
    return script[(script["wait"] >= 0) | (script["send"] >= 0)]
