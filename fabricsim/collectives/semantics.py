"""Carries out a template in plain Python and follows whose contributions each shard holds.

This says whether an algorithm is right, whatever it costs: an all-reduce is right where at the end every
member holds, of every shard, the sum of all contributions, each exactly once.
"""

import random
from collections import deque
from collections.abc import Sequence

import numpy as np

from fabricsim.collectives.base import Template
from fabricsim.errors import InputError

WINDOW = 2
"""Messages that a sender may be ahead of its receiver, as in the engines."""

_ROUNDS = 3  # one more than a sender may be ahead: what stops there stops for ever

_MANY = 2**16  # shards of all members together above which one round is followed, for the time that it takes

Holding = list[int]
"""Contributions in each shard of a buffer, one bit each."""


class WrongAlgorithmError(InputError):
    """An algorithm does not do what the collective is to do."""


def check(collective: str, made: Template, name: str, seed: int = 0) -> None:
    """Refuse a template that does not carry out a collective.

    `collective`: what it is to do.
    `name`: of the algorithm, for messages.
    `seed`: of the order in which lanes get on; the result must not depend on it.
    Raises WrongAlgorithmError if a member ends up with something else, a contribution is counted twice, a message is
        not waited for, or the members wait for one another for ever.
    """
    order = random.Random(seed)  # noqa: S311  not for secrets
    run = _Run(made, f"algorithm {name!r} for {collective} over {made.members} ranks", order)
    owners = range(made.members + len(made.switches))
    rounds = [
        [start(collective, made, owner) for owner in owners]
        for _ in range(_ROUNDS if made.members * made.slots <= _MANY else 1)
    ]
    run.require_receivers()
    run.play(rounds)
    for holdings in rounds:
        for member in range(made.members):
            _require(collective, made, holdings, member, run.title)
        if collective == "reduce_scatter":
            _require_all_shards(made, holdings, run.title)


def check_messages(made: Template, title: str) -> None:
    """Refuse a template whose members wait for one another for ever, whatever data their messages carry.

    `made`: the template; each of its messages has somebody who waits for it.
    Raises WrongAlgorithmError if members wait for ever.
    """
    scripts = [made.script(lane)[["wait", "send"]].tolist() for lane in range(made.lanes)]
    receivers, sources = made.connections[:, :, 0].tolist(), made.sources.tolist()
    inboxes = made.sources.shape[1]
    boxes = (made.connections[:, :, 0] * inboxes + made.connections[:, :, 1]).tolist()
    held = [0] * (made.lanes * inboxes)  # messages in each lane's inboxes
    through = [0] * made.lanes
    received = [False] * made.lanes  # of the step that a lane is at
    ready = deque(lane for lane in range(made.lanes) if scripts[lane])
    while ready:
        lane = ready.popleft()
        script = scripts[lane]
        while through[lane] < _ROUNDS * len(script):
            wait, out = script[through[lane] % len(script)]
            if wait >= 0 and not received[lane]:
                box = lane * inboxes + wait
                if not held[box]:
                    break
                if held[box] == WINDOW:  # for which alone a sender waits
                    ready.append(sources[lane][wait])
                held[box] -= 1
                received[lane] = True
            if out >= 0:
                box = boxes[lane][out]
                if held[box] == WINDOW:
                    break
                if not held[box]:
                    ready.append(receivers[lane][out])
                held[box] += 1
            through[lane], received[lane] = through[lane] + 1, False
    stuck = {made.owner(lane) for lane in range(made.lanes) if through[lane] < _ROUNDS * len(scripts[lane])}
    if stuck:
        raise WrongAlgorithmError(_stuck(title, stuck))


def _stuck(title: str, members: set[int]) -> str:
    return f"{title}: ranks {sorted(members)[:8]} wait for messages that never come, or send what nobody takes"


def start(collective: str, made: Template, owner: int) -> Holding:
    """Fill an owner's buffer with what it holds before; a switch has nothing."""
    n, shards, rest = made.members, made.shards, [0] * (made.slots - made.shards)
    if owner >= n:
        return [0] * made.slots
    if collective in {"all_reduce", "reduce_scatter", "reduce", "ring_exchange"}:
        return [1 << owner] * shards + rest
    if collective == "all_gather":
        return [1 << owner if _home(made, shard) == owner else 0 for shard in range(shards)] + rest
    if collective == "all_to_all":
        return [1 << (owner * n + _home(made, shard)) for shard in range(shards)] + rest
    return [1 if owner == 0 else 0] * shards + rest


def _home(made: Template, shard: int) -> int:
    """Whose shard of a gathered or exchanged buffer one is, if each member has the same number of them."""
    return shard * made.members // made.shards


def _require(collective: str, made: Template, holdings: Sequence[Holding], member: int, title: str) -> None:
    n, holding = made.members, holdings[member]
    everyone = (1 << n) - 1
    if collective == "all_to_all":
        for source in range(n):
            copies = holding.count(1 << (source * n + member))
            if copies != made.shards // n:
                msg = f"{title}: rank {member} holds {copies} blocks of rank {source}, not {made.shards // n}"
                raise WrongAlgorithmError(msg)
        return
    expected: dict[str, list[int] | None] = {
        "all_reduce": [everyone] * made.shards,
        "all_gather": [1 << _home(made, shard) for shard in range(made.shards)],
        "reduce": [everyone] * made.shards if member == 0 else None,
        "ring_exchange": [1 << (member - 1) % n] * made.shards,
        "broadcast": [1] * made.shards,
        "send_recv": [1] * made.shards,
    }
    wanted = expected.get(collective)
    if wanted is None or holding[: made.shards] == wanted:
        return
    shard = next(shard for shard in range(made.shards) if holding[shard] != wanted[shard])
    found, missing = _ranks(holding[shard]), _ranks(wanted[shard])
    msg = f"{title}: rank {member} ends with the contributions of {found} in shard {shard}, not of {missing}"
    raise WrongAlgorithmError(msg)


def _ranks(contributions: int) -> str:
    ranks = [str(rank) for rank in range(contributions.bit_length()) if contributions >> rank & 1]
    return f"ranks {', '.join(ranks)}" if ranks else "nobody"


def _require_all_shards(made: Template, holdings: Sequence[Holding], title: str) -> None:
    """Every shard must be whole at a member of its own, each member having as many as the others."""
    everyone = (1 << made.members) - 1
    whole = [
        {shard for shard, held in enumerate(holdings[m][: made.shards]) if held == everyone}
        for m in range(made.members)
    ]
    counts = {len(shards) for shards in whole}
    if counts != {made.shards // made.members} and made.members > 1:
        msg = f"{title}: the ranks end with {[len(shards) for shards in whole]} reduced shards each, not all the same"
        raise WrongAlgorithmError(msg)
    if set().union(*whole) != set(range(made.shards)):
        raise WrongAlgorithmError(f"{title}: some shard is reduced nowhere, or at two ranks")


class _Run:
    """A few rounds, in some order of the lanes."""

    def __init__(self, made: Template, title: str, order: random.Random) -> None:
        self.made, self.title, self._order = made, title, order
        self._inboxes: dict[tuple[int, int], deque[tuple[int, ...]]] = {}
        self._received: dict[tuple[int, int], int] = {}
        self._given: list[list[Holding]] = []

    def play(self, rounds: list[list[Holding]]) -> None:
        """Let the lanes get on until all are through; holdings by round and owner."""
        lanes = range(self.made.lanes)
        self._given = [[list(holding) for holding in those] for those in rounds] if self.made.out_of_place else rounds
        scripts = [self.made.script(lane).tolist() for lane in lanes]
        at = [(0, 0, False)] * len(lanes)  # round, step, and whether it has received
        open_lanes = [lane for lane in lanes if scripts[lane]]
        while open_lanes:
            self._order.shuffle(open_lanes)
            before = list(at)
            for lane in open_lanes:
                at[lane] = self._go_on(lane, scripts[lane], at[lane], rounds)
            open_lanes = [lane for lane in open_lanes if at[lane][0] < len(rounds)]
            if at == before and open_lanes:
                raise WrongAlgorithmError(_stuck(self.title, {self.made.owner(lane) for lane in open_lanes}))

    def require_receivers(self) -> None:
        """Refuse a connection on which more or fewer messages are sent in a round than are waited for."""
        made = self.made
        waits = {(lane, int(k)): 0 for lane, k in np.argwhere(made.sources >= 0).tolist()}
        for lane in range(made.lanes):
            script = made.script(lane)
            for inbox in script["wait"][script["wait"] >= 0].tolist():
                waits[lane, inbox] += 1
        for lane, out in np.argwhere(made.connections[:, :, 0] >= 0).tolist():
            receiver, inbox = made.connections[lane, out].tolist()
            sends = int((made.script(lane)["send"] == out).sum())
            if sends != waits[receiver, inbox]:
                pair = f"rank {made.owner(lane)} sends {sends} messages to rank {made.owner(receiver)}"
                raise WrongAlgorithmError(f"{self.title}: {pair}, which waits for {waits[receiver, inbox]}")

    def _go_on(
        self, lane: int, script: list[tuple[int, ...]], place: tuple[int, int, bool], rounds: list[list[Holding]]
    ) -> tuple[int, int, bool]:
        """Go through a script until it must wait, or for a while."""
        turn, number, received = place
        for _ in range(self._order.randrange(1, 4)):
            if turn == len(rounds):
                break
            mine = rounds[turn][self.made.owner(lane)]
            received = received or self._receive(lane, script[number], turn, mine)
            if not received or not self._send(lane, script[number], turn):
                break
            turn, number, received = turn + (number + 1) // len(script), (number + 1) % len(script), False
        return turn, number, received

    def _receive(self, lane: int, step: tuple[int, ...], turn: int, mine: Holding) -> bool:
        wait, needed, per_turn, _, _, _, run, every, into, reduce = step
        if wait < 0:
            return True
        box = self._inboxes.get((lane, wait))
        if not box:
            return False
        count = self._received.get((lane, wait), 0) + 1
        self._received[lane, wait] = count
        if count != turn * per_turn + needed:
            msg = f"{self.title}: lane {lane} waits for message {turn * per_turn + needed} where {count} is due"
            raise WrongAlgorithmError(msg)
        slots = self._slots(lane, into, None, run, every)
        if self.made.owner(lane) < self.made.members:
            self._require_content(lane, mine, slots[:reduce], "reduces")
        self._take(mine, box.popleft(), slots, reduce)
        return True

    def _send(self, lane: int, step: tuple[int, ...], turn: int) -> bool:
        mine = self._given[turn][self.made.owner(lane)]
        _, _, _, send, shard, shards, run, every, _, _ = step
        if send < 0:
            return True
        receiver, inbox = self.made.connections[lane, send].tolist()
        box = self._inboxes.setdefault((receiver, inbox), deque())
        if len(box) >= WINDOW:
            return False
        slots = self._slots(lane, shard, shards, run, every)
        self._require_content(lane, mine, slots, "sends")
        box.append(tuple(mine[slot] for slot in slots))
        return True

    def _require_content(self, lane: int, mine: Holding, slots: Sequence[int], what: str) -> None:
        empty = next((slot for slot in slots if not mine[slot]), None)
        if empty is not None:
            msg = f"{self.title}: rank {self.made.owner(lane)} {what} shard {empty}, which holds nothing yet"
            raise WrongAlgorithmError(msg)

    def _slots(self, lane: int, first: int, count: int | None, run: int, every: int) -> list[int]:
        """Shards of a step in order; where `count` is None, as many as there may be."""
        shards = self.made.slots
        if self.made.relative:
            first += lane % self.made.members
        places = range(shards if count is None else count)
        return [(first + (k if run == 0 else k // run * every + k % run)) % shards for k in places]

    def _take(self, mine: Holding, content: tuple[int, ...], slots: list[int], reduce: int) -> None:
        if reduce and reduce != len(content):
            raise WrongAlgorithmError(f"{self.title}: {len(content)} shards arrive where {reduce} are to be reduced")
        for slot, what in zip(slots, content, strict=False):
            if reduce and mine[slot] & what:
                twice = _ranks(mine[slot] & what)
                msg = f"{self.title}: the contributions of {twice} are counted twice in shard {slot}"
                raise WrongAlgorithmError(msg)
            mine[slot] = mine[slot] | what if reduce else what
