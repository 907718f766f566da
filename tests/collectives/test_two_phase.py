from __future__ import annotations

import pytest

from fabricsim.collectives import template
from fabricsim.collectives.base import Group
from fabricsim.collectives.semantics import check
from fabricsim.errors import SimulationError


@pytest.mark.parametrize(("local", "hosts"), [(1, 2), (2, 2), (4, 3), (3, 5), (8, 1)])
def test_every_block_arrives(local: int, hosts: int) -> None:
    group = Group(tuple(host for host in range(hosts) for _ in range(local)), (0,) * (local * hosts))

    made = template("all_to_all", local * hosts, "two_phase", group)

    check("all_to_all", made, "two_phase")
    # a member sends its own blocks on inside the host, and those of its host along its rail
    shares = made.shares().sum(axis=1) * made.members
    assert set(shares.tolist()) == {float((local - 1) * hosts + (hosts - 1) * local)}


def test_hosts_have_their_members_side_by_side() -> None:
    with pytest.raises(SimulationError, match="one after the other"):
        template("all_to_all", 4, "two_phase", Group((0, 1, 0, 1), (0,) * 4))
