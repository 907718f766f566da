"""Rails: NICs of one number in their hosts that have switches of their own."""

from collections.abc import Iterator

from fabricsim.errors import Mistake
from fabricsim.scenario.network import Ends


def needless_rails(ends: Ends, key: str) -> Iterator[Mistake]:
    """Refuse rails if a host has one NIC; `key` asks for them."""
    if ends.nics_per_host == 1:
        way_out = "set it to false, or add NICs" if key == "rails" else "choose another, or add NICs"
        yield Mistake(key, "has no effect if a host has one NIC", way_out)
