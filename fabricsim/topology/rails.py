"""Rails: NICs of one number in their hosts that have switches of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricsim.errors import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricsim.scenario.network import Ends


def needless_rails(ends: Ends, *, rails: bool) -> Iterator[Mistake]:
    """Refuse rails if a host has one NIC."""
    if rails and ends.nics_per_host == 1:
        yield Mistake("rails", "has no effect if a host has one NIC", "set it to false, or add NICs")
