"""Each collective's lowering: the template of each algorithm for a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fabricsim.collectives import BY_HOST, FLAT
from fabricsim.collectives.base import Group
from fabricsim.collectives.semantics import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricsim.collectives.base import Template

MEMBERS = 64
PER_HOST = 8
TIMES = 5
ALGORITHMS = [*FLAT, *BY_HOST]


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS, ids=["-".join(each) for each in ALGORITHMS])
def test_lowering(measured: Callable[..., Any], collective: str, algorithm: str) -> None:
    flat = FLAT.get((collective, algorithm))
    per_host = MEMBERS if algorithm == "nvls" else PER_HOST  # which works within one host
    group = Group(tuple(rank // per_host for rank in range(MEMBERS)), (0,) * MEMBERS)
    members = 2 if collective == "send_recv" else MEMBERS

    def run(_nothing: None) -> tuple[int, Template]:
        for _ in range(TIMES):
            made = flat(members) if flat else BY_HOST[collective, algorithm](group)
        return TIMES, made

    made = measured(run, lambda: None, "templates")
    assert made.members == members
    check(collective, made, algorithm, 1)
