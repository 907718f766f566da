"""What calls of a collective run with, on hosts of one kind or of several."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fabricsim.collectives.nccl.plan import chooser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricsim.collectives.choice import Choice, Choose
    from fabricsim.scenario.scenario import Scenario
    from fabricsim.topology.platform import Platform


def choosing(views: Sequence[Scenario], platform: Platform) -> Choose:
    """Choose as the hosts of a group do: by the transport that they speak."""
    if len(views) == 1:
        return chooser(views[0])
    of_kind = cache(lambda kind: chooser(views[kind]))

    def choose(collective: str, ranks: tuple[int, ...], size: int) -> Choice:
        kinds = dict.fromkeys(platform.kinds.kind[platform.host_of(rank)] for rank in ranks)
        choice: Choice = of_kind(platform.kinds.spoken(kinds))(collective, ranks, size)
        return choice

    return choose
