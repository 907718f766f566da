from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fabricsim.records import transport as tt
from fabricsim.records.program import NEVER
from fabricsim.scenario.balancing import RULES
from fabricsim.scenario.congestion import LAWS
from fabricsim.scenario.load import load
from fabricsim.scenario.transport import Transport
from fabricsim.transports import TRANSPORTS
from fabricsim.transports.dispatch import built_in
from fabricsim.transports.framing import FRAMINGS
from fabricsim.transports.laws.dctcp import AT_MARKS, EVERY_WINDOW
from fabricsim.transports.parameters import law_row

US = 1_000_000  # ps
GBPS = 1e9 / 8  # bytes/s


def _transport(kind: str = "roce", **keys: object) -> Transport:
    switch = {"name": "round", "latency": "0ns", "forwarding": "cut-through"}
    defaults = {"name": "round", "kind": kind, "line_rate": "100Gbps", "switch": switch, "mtu": 2000, "latency": "5us"}
    return Transport.model_validate({**defaults, **keys})


def _row(kind: str = "roce", **keys: object) -> Any:  # noqa: ANN401  a record
    table = law_row(_transport(kind, **keys))
    assert table.shape == (1,)
    assert table.dtype == built_in().law
    return table[0]


def _law(law: str, **keys: object) -> Any:  # noqa: ANN401  a record
    return _row(congestion_control={"law": law, **keys})


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_packets_are_cut_by_the_framing_of_the_kind(kind: str) -> None:
    row, framing = _row(kind), FRAMINGS[kind](2000)

    assert (row["payload"], row["overhead"], row["ack_wire"]) == (framing.payload, framing.overhead, framing.ack)


def test_framing_may_be_overridden_part_by_part() -> None:
    row = _row("infiniband", packet={"payload": "4096B", "header": "64B"})

    assert (row["payload"], row["overhead"], row["ack_wire"]) == (4096, 64, 30)
    assert _row("infiniband", packet={"header": "0B"})["overhead"] == 0
    assert _row("infiniband", packet={"ack_wire": "64B"})["ack_wire"] == 64


def test_efficiency_is_left_to_the_host_link() -> None:
    assert law_row(_transport(efficiency=0.5)) == law_row(_transport())


def test_packet_settings_pass_in_their_units() -> None:
    keys = {
        "recovery": "selective",
        "ack_every": 4,
        "ack_delay": "2us",
        "reordering": 7,
        "initial_timeout": "3ms",
        "minimum_timeout": "2ms",
        "maximum_timeout": "4ms",
        "handshake": 1,
        "data_class": 3,
        "ack_class": 2,
    }

    row = _row(packet=keys)

    assert row["recovery"] == tt.SELECTIVE
    assert [row[key] for key in ("ack_every", "reordering", "handshake", "data_class", "ack_class")] == [4, 7, 1, 3, 2]
    assert row["ack_delay"] == 2 * US
    assert [row[f"{key}_timeout"] for key in ("initial", "minimum", "maximum")] == [3000 * US, 2000 * US, 4000 * US]
    assert _row(packet={"nack_interval": "9us"})["nack_interval"] == 9 * US


# At least twice the window and 64, a power of two, 65536 at most. 1948 bytes of payload at an MTU of 2000.
@pytest.mark.parametrize(
    ("window", "packets", "span"),
    [
        ("1kB", 1, 64),
        ("62336B", 32, 64),
        ("64284B", 33, 128),
        ("4MiB", 2153, 8192),
        ("1GiB", 551_202, 65_536),
    ],
)
def test_selective_recovery_spans_two_windows(window: str, packets: int, span: int) -> None:
    row = _row("tcp", packet={"maximum_window": window})

    assert packets == max(_bytes(window) // 1948, 1)
    assert (row["maximum_window"], row["span"]) == (packets, span)


def _bytes(text: str) -> int:
    units = {"GiB": 2**30, "MiB": 2**20, "kB": 1000, "B": 1}
    unit = next(unit for unit in units if text.endswith(unit))
    return int(text.removesuffix(unit)) * units[unit]


def test_go_back_n_keeps_nothing_for_each_packet_and_has_no_span() -> None:
    assert _row("roce")["span"] == 2**40


def test_hpcc_has_a_span_even_with_go_back_n_because_it_keeps_telemetry() -> None:
    """1 MiB are 524 packets of 2000 bytes; twice that is within 2048."""
    row = _law("hpcc")

    assert (row["recovery"], row["maximum_window"], row["span"]) == (tt.GO_BACK_N, 2**20 // 2000, 2048)


def test_telemetry_is_kept_for_no_more_packets_than_a_packet_can_name() -> None:
    row = _row(congestion_control={"law": "hpcc"}, packet={"maximum_window": "1GiB"})

    assert row["span"] == np.iinfo(np.int16).max + 1


def test_without_a_bound_half_of_the_sequence_numbers_may_be_in_flight() -> None:
    row = _row("infiniband")

    assert built_in().laws[row["law"]] is LAWS.own["none"]
    assert (row["maximum_window"], row["initial_window"]) == (2**23, 2**23)


@pytest.mark.parametrize("law", ["new-reno", "cubic", "dctcp"])
def test_tcp_starts_with_its_initial_window_and_no_threshold(law: str) -> None:
    table = {"law": law}
    preset = _row("tcp", congestion_control=table)
    own = _row("tcp", congestion_control={**table, "initial_threshold": 100.0}, initial_window=4)
    narrow = _row("tcp", congestion_control=table, packet={"maximum_window": "4kB"})
    idle = _row("tcp", congestion_control=table, idle_restart="3us")

    assert (preset["initial_window"], preset["initial_threshold"]) == (10, math.inf)
    assert (own["initial_window"], own["initial_threshold"]) == (4, 100)
    assert (narrow["initial_window"], narrow["maximum_window"]) == (2, 2)
    assert (preset["idle_restart"], idle["idle_restart"]) == (NEVER, 3 * US)


def test_laws_that_answer_to_marks_let_their_packets_be_marked() -> None:
    assert {law for law in LAWS.own if _law(law)["ecn"]} == {"dctcp", "dcqcn", "nscc"}


def test_laws_and_balances_have_their_numbers() -> None:
    for number, name in enumerate(LAWS.own):
        assert _law(name)["law"] == number
    for number, name in enumerate(RULES.own):
        row = _row(load_balancing={"kind": name}, congestion_control={"law": "none"})
        assert (row["balance"], row["one_path"]) == (number, name == "ecmp")
        assert (row["renews"], row["weighs"]) == (name in {"spray", "flowlet"}, name == "adaptive")


def test_flowlets_and_entropies_pass_through() -> None:
    row = _row(load_balancing={"kind": "flowlet", "entropies": 16, "flowlet_gap": "50us"})

    assert (row["renews"], row["entropies"], row["flowlet_gap"]) == (1, 16, 50 * US)


def _values(row: Any, keys: str) -> list[float]:  # noqa: ANN401  a record
    return [float(row[key]) for key in keys.split()]


def test_cubic_and_dctcp_have_the_constants_of_their_rfcs() -> None:
    assert _values(_law("cubic"), "scale decrease") == [0.4, 0.7]  # RFC 9438, section 4.6 and 5
    assert _values(_law("dctcp"), "gain") == [1 / 16]  # RFC 8257, section 4.2
    assert _values(_law("dctcp"), "initial_alpha cut") == [1, AT_MARKS]  # RFC 8257, section 3.3


def test_dctcp_may_cut_at_the_end_of_every_window() -> None:
    row = _law("dctcp", initial_alpha=0.0, cut="every-window")

    assert _values(row, "initial_alpha cut") == [0, EVERY_WINDOW]


def test_dcqcn_has_the_tuned_set_at_100_gbps() -> None:
    """5 and 50 Mb/s per 25 Gb/s, 1 Gb/s at least: Li et al., SIGCOMM 2019, published configuration."""
    row = _law("dcqcn")

    assert _values(row, "gain stages clamp raise_bytes cnp_interval") == [1 / 256, 1, 0, 0, 0]
    assert _values(row, "alpha_interval cut_interval raise_interval") == [1 * US, 4 * US, 300 * US]
    assert _values(row, "additive hyper minimum_rate") == pytest.approx([0.02 * GBPS, 0.2 * GBPS, 1 * GBPS])


def test_dcqcn_parameters_pass_in_their_units() -> None:
    keys = {"raise_bytes": "10MB", "additive": "40Mbps", "clamp": True, "cnp_interval": "50us", "cut_interval": "0us"}

    row = _law("dcqcn", **keys)

    assert _values(row, "raise_bytes additive clamp cnp_interval cut_interval") == [1e7, 5e6, 1, 50 * US, 0]


@pytest.mark.parametrize("law", ["dcqcn", "timely"])
def test_increases_grow_with_the_line_rate_unless_written(law: str) -> None:
    slow = _row(congestion_control={"law": law, "hyper": "1Gbps"}, line_rate="25Gbps")
    fast = _law(law)

    assert slow["additive"] == pytest.approx(fast["additive"] / 4)
    assert slow["minimum_rate"] == pytest.approx(fast["minimum_rate"] / 4)
    assert slow["hyper"] == GBPS


def test_timely_has_the_published_parameters() -> None:
    """10 and 50 Mb/s per 10 Gb/s; Mittal et al., SIGCOMM 2015, section 4 has the rest."""
    row = _law("timely")

    assert _values(row, "gain decrease stages") == [0.875, 0.8, 5]
    assert _values(row, "low high minimum_rtt") == [50 * US, 500 * US, 20 * US]
    assert _values(row, "additive hyper") == pytest.approx([0.1 * GBPS, 0.5 * GBPS])


def test_swift_scales_its_targets_with_the_base_target() -> None:
    row = _law("swift", low="10us")

    assert _values(row, "low per_hop flow_range") == pytest.approx([10 * US, 10 * US / 6.55, 50 * US])
    assert _values(_law("swift", per_hop="1us", flow_range="0us"), "per_hop flow_range") == [1 * US, 0]
    assert _values(row, "initial_window minimum_window additive decrease largest_cut") == [10, 0.1, 1, 0.8, 0.5]


def test_hpcc_adds_bytes_as_shares_of_a_packet_on_the_wire() -> None:
    """40 Mb/s over 13 us are 65 bytes; a packet has 2000 + 82."""
    assert _law("hpcc")["additive"] == pytest.approx(65 / 2082)
    assert _law("hpcc", additive="1041B")["additive"] == pytest.approx(0.5)


def test_nscc_is_itself_on_its_reference_network() -> None:
    """100 Gb/s and 12 us: scaling a = 1; target 9 us, so b = 0.75, and alpha = 4 a b / target."""
    row = _law("nscc")

    assert _values(row, "low fair eta quick bdp_limit") == pytest.approx([9 * US, 5, 0.15, 0.25, 1.5])
    assert row["proportional"] == pytest.approx(4 * 0.75 / (9 * US))
    assert _values(row, "gain decrease largest_cut adapt_delay adapt_gate") == [0.0125, 0.8, 0.5, 4, 0.125]


def test_nscc_scales_with_the_bandwidth_delay_product() -> None:
    """400 Gb/s and 6 us are twice the product: a = 2; target 4.5 us, so b = 0.375."""
    row = _row(congestion_control={"law": "nscc", "rtt": "6us"}, line_rate="400Gbps")
    own = _law("nscc", proportional=6.0, low="2us", fair=1.0)

    assert _values(row, "low fair eta quick") == pytest.approx([4.5 * US, 10, 0.3, 0.5])
    assert row["proportional"] == pytest.approx(4 * 2 * 0.375 / (4.5 * US))
    assert _values(own, "proportional fair") == pytest.approx([6 / (2 * US), 1])


# Preset, and the row that a transport of its kind has without tables: the figures in both have one source.
@pytest.mark.parametrize(("preset", "but"), [("tcp-10g", ""), ("ipoib-100g", ""), ("roce-100g", "timeout")])
def test_presets_say_what_the_defaults_of_their_kind_say(preset: str, but: str) -> None:
    transport = load("gpt2-medium-dp", [f"transport={preset}"]).scenario.transport
    bare = transport.model_copy(update={"packet": None, "congestion_control": None})
    same = [name for name in built_in().law.names or () if not but or but not in name]

    np.testing.assert_array_equal(law_row(transport)[same], law_row(bare)[same])


def test_the_uec_preset_sends_packets_of_4160_bytes() -> None:
    row = law_row(load("gpt2-medium-dp", ["transport=uec-100g"]).scenario.transport)[0]

    assert row["payload"] + row["overhead"] == 4160
    assert (row["renews"], row["recovery"], row["data_class"]) == (1, tt.SELECTIVE, 1)
    assert row["reordering"] > 1.5 * 150_000 / 4096 + 1  # more than ever is in flight: nothing is lost by overtaking
