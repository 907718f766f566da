"""The warning before packets of a lossless class are lost."""

from __future__ import annotations

import warnings

import pytest
import simpy

from fabricsim.engine.fabric import Fabric
from fabricsim.engine.outcome import counters
from fabricsim.errors import FabricsimWarning
from fabricsim.run.pipeline import load

# 5 ns/m of 100 m there and back, 300 ns of the switch, and 64 B of 100 Gb/s take 1305.12 ns, in which the adapter sends
# 16,151 B at 99 % of that rate; a full packet of RoCE takes 4096 + 82 B
NEEDED = 16_151 + 4096 + 82


def _incast(headroom: int, *more: str) -> int:
    """Packets that are lost where seven hosts send to one."""
    pfc = f'{{ above = "20kB", below = "10kB", headroom = "{headroom}B" }}'
    switch = f'{{ name = "short", latency = "300ns", forwarding = "store-and-forward", pfc = {pfc} }}'
    settings = ["cluster.hosts=8", "transport=roce-100g-pfc", "engine=packet", "fabric.host_cable=100m"]
    env = simpy.Environment()
    fabric = Fabric(env, load("ideal-16", [*settings, f"fabric.switch={switch}", *more]).scenario)
    for source in range(1, 8):
        fabric.send(source, 0, 400_000)
    env.run()
    return counters(fabric)["drops"]


def test_headroom_that_holds_what_still_comes_loses_nothing_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _incast(NEEDED) == 0


def test_less_headroom_is_warned_of_and_loses_packets() -> None:
    with pytest.warns(FabricsimWarning, match=r"fabric\.switch\.pfc\.headroom: .* may be lost") as caught:
        lost = _incast(NEEDED - 4096 - 82)
    assert lost > 0
    assert f"still brings {NEEDED} B" in str(caught[0].message)
    assert "are too few on 8 of 16 links" in str(caught[0].message)
    assert f"raise it to {NEEDED}B" in str(caught[0].message)


# An adapter that reads through PCIe or from a thread has up to 16 packets between memory and wire, which a PAUSE
# does not stop.
@pytest.mark.parametrize("host", ["transport.send_copy=0.05ns/B", "cluster=pinnacles"])
def test_what_adapters_have_read_ahead_needs_headroom_too(host: str) -> None:
    more = (host, "cluster.hosts=8", "fabric.host_cable=100m")
    with pytest.warns(FabricsimWarning, match="16 full packets that the adapter has taken") as caught:
        lost = _incast(NEEDED, *more)
    assert lost > 0
    assert f"raise it to {NEEDED + 15 * 4178}B" in str(caught[0].message)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _incast(NEEDED + 15 * 4178, *more) == 0
