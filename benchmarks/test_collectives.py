"""Each collective's lowering: the template of each algorithm for a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fabricsim.collectives import by_host
from fabricsim.collectives.base import Group
from fabricsim.collectives.semantics import check
from fabricsim.scenario.collectives import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.collectives.base import Template

MEMBERS = 64
PER_HOST = 8
TIMES = 5
NAMED = [(collective, name) for name, each in ALGORITHMS.own.items() for collective in each.of]


@pytest.mark.parametrize(("collective", "algorithm"), NAMED, ids=["-".join(each) for each in NAMED])
def test_lowering(measured: Callable[..., Any], collective: str, algorithm: str) -> None:
    make = ALGORITHMS.own[algorithm].of[collective]
    per_host = MEMBERS if algorithm == "nvls" else PER_HOST  # which works within one host
    group = Group(tuple(rank // per_host for rank in range(MEMBERS)), (0,) * MEMBERS)
    members = 2 if collective == "send_recv" else MEMBERS

    def run(_nothing: None) -> tuple[int, Template]:
        for _ in range(TIMES):
            made = make(group if by_host(collective, algorithm) else members)
        return TIMES, made

    made = measured(run, lambda: None, "templates")
    assert made.members == members
    check(collective, made, algorithm, 1)
