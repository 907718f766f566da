"""What only the packet engine reads: switches, loss recovery, congestion control, load balancing."""

from __future__ import annotations

from itertools import islice

import pytest

from fabricsim.errors import Mistake, ScenarioError
from fabricsim.scenario import library
from fabricsim.scenario.in_force import law_in_force, setting
from fabricsim.scenario.load import load
from fabricsim.scenario.scenario import Scenario

DP = "gpt2-medium-dp"
ROCE = "transport=roce-100g"
PACKET = "engine=packet"
PLAIN = "fabric.switch={ name = 'own', latency = '0us', forwarding = 'cut-through'"
LAW = "transport.congestion_control.law"


def _scenario(*overrides: str) -> Scenario:
    return load(DP, overrides).scenario


def _mistakes(*overrides: str) -> list[Mistake]:
    with pytest.raises(ScenarioError) as caught:
        load(DP, overrides)
    assert all(mistake.where for mistake in caught.value.mistakes)
    return list(caught.value.mistakes)


def _switch(keys: str) -> str:
    return f"{PLAIN}, {keys} }}"


PFC = "pfc = { above = '20kB', below = '10kB', headroom = '5kB' }"

REFUSED_SWITCHES = [
    ("buffer = {}", "buffer", "has no size"),
    ("buffer = { per_port = '1MB', shared = '1MB' }", "buffer.per_port", "excludes shared"),
    ("buffer = { per_port = '1MB', alpha = 1.0 }", "buffer.alpha", "no effect without shared"),
    ("buffer = { per_port = '0B' }", "buffer.per_port", "is too small"),
    ("buffer = { shared = '1MB', alpha = 0.0 }", "buffer.alpha", "is too small"),
    ("ecn = { low = '2kB', high = '1kB' }", "ecn.low", "2000 B is above high, 1000 B"),
    ("ecn = { low = '1kB', high = '1kB', probability = 0.5 }", "ecn.probability", "no effect with low = high"),
    ("ecn = { low = '1kB', high = '2kB', probability = 1.5 }", "ecn.probability", "is too large"),
    ("ecn = { low = '1kB', high = '2kB', at = 'dequeued' }", "ecn.at", "dequeued"),
    ("ecn = { low = '1kB' }", "ecn.high", "is missing"),
    (f"credits = {{ per_class = '64KiB' }}, {PFC}", "pfc", "excludes credits"),
    ("credits = { per_class = '64KiB' }, buffer = { per_port = '1MB' }", "buffer", "no effect with credits"),
    ("credits = { per_class = '63B' }", "credits.per_class", "is too small"),
    ("pfc = { below = '1kB', headroom = '1kB' }", "pfc.above", "is missing"),
    ("pfc = { above = '1kB', below = '2kB', headroom = '1kB' }", "pfc.below", "2000 B is more than above, 1000 B"),
    ("pfc = { alpha = 0.125, below = '2kB', headroom = '1kB' }", "pfc.alpha", "there is none"),
    (
        "pfc = { alpha = 0.125, below = '2kB', headroom = '1kB' }, buffer = { per_port = '1MB' }",
        "pfc.alpha",
        "there is none",
    ),
    ("pfc = { above = '9kB', below = '2kB', headroom = '1kB', classes = [1] }", "pfc.classes", "1 is no class"),
    ("pfc = { above = '9kB', below = '2kB', headroom = '1kB', classes = [8] }", "pfc.classes[0]", "is too large"),
    ("pfc = { above = '9kB', below = '2kB', headroom = '1kB', classes = [] }", "pfc.classes", "is empty"),
    ("pfc = 3", "pfc", "3 is no table"),
    ("trimming = true, classes = 2", "trimming", "no effect without a buffer"),
    ("trimming = true, buffer = { per_port = '1MB' }", "trimming", "needs a second class"),
    ("classes = 9", "classes", "is too large"),
    ("scheduler = { kind = 'strict' }", "scheduler", "no effect with one class"),
    ("classes = 2, scheduler = { kind = 'strict', weights = ['1kB', '1kB'] }", "scheduler.weights", "strict priority"),
    ("classes = 2, scheduler = { kind = 'dwrr', weights = ['1kB'] }", "scheduler.weights", "1 weights do not fit 2"),
    ("classes = 2, scheduler = { kind = 'dwrr', weights = ['1kB', '1B'] }", "scheduler.weights[1]", "is too small"),
]


@pytest.mark.parametrize(("keys", "key", "problem"), REFUSED_SWITCHES)
def test_switches_that_cannot_be_are_refused(keys: str, key: str, problem: str) -> None:
    (mistake,) = _mistakes(_switch(keys))

    assert mistake.key == f"fabric.switch.{key}"
    assert problem in mistake.problem
    assert mistake.way_out


def test_the_switch_of_a_transport_is_checked_as_well() -> None:
    (mistake,) = _mistakes("transport.switch.credits.per_class=1kB", "transport.switch.ecn={low='2B',high='1B'}")

    assert mistake.key == "transport.switch.ecn.low"


@pytest.mark.parametrize(
    "keys",
    [
        PFC,
        f"{PFC}, buffer = {{ shared = '1MB', alpha = 8.0 }}",
        "pfc = { alpha = 0.125, below = '2kB', headroom = '1kB' }, buffer = { shared = '1MB' }",
        "classes = 2, trimming = true, buffer = { per_port = '1MB' }",
        "classes = 2, scheduler = { kind = 'dwrr', weights = ['3kB', '1kB'] }",
        "ecn = { low = '0B', high = '0B' }",
        "credits = { per_class = '64KiB' }, ecn = { low = '1kB', high = '2kB' }",
    ],
)
def test_switches_that_can_be_are_accepted(keys: str) -> None:
    assert _scenario(_switch(keys)).switch.name == "own"


REFUSED_TRANSPORTS = [
    ("packet.reordering=5", "packet.reordering", 'no effect with recovery = "go-back-n"'),
    ("packet={ recovery = 'selective', nack_interval = '1us' }", "packet.nack_interval", 'recovery = "selective"'),
    ("packet={ ack_every = 4, maximum_window = '15kB' }", "packet.maximum_window", "15000 B is less than 4 packets of"),
    ("packet={ ack_every = 1, quick_acks = 4 }", "packet.quick_acks", "4 has no effect with ack_every 1"),
    ("packet.quick_acks=1025", "packet.quick_acks", "is too large"),
    ("packet.minimum_timeout=10s", "packet.minimum_timeout", "minimum_timeout <= initial_timeout <= maximum"),
    ("packet.maximum_timeout=1us", "packet.minimum_timeout", "minimum_timeout <= initial_timeout <= maximum"),
    ("packet.initial_timeout=0s", "packet.initial_timeout", "is too small"),
    ("packet.payload=0B", "packet.payload", "is too small"),
    ("packet.payload=65537B", "packet.payload", "is too large"),
    ("packet.data_class=8", "packet.data_class", "is too large"),
    ("packet.device_queue=true", "packet.device_queue", "infiniband passes by"),
    ("packet.device_mark=9kB", "packet.device_mark", "no effect without device_queue"),
    ("packet.maximum_window=0B", "packet.maximum_window", "is too small"),
    ("packet.recovery=none", "packet.recovery", "'none' is not one of go-back-n, selective"),
    ("load_balancing.entropies=4", "load_balancing.entropies", 'no effect with kind = "ecmp"'),
    ("load_balancing={ kind = 'spray', flowlet_gap = '1us' }", "load_balancing.flowlet_gap", 'kind = "spray"'),
    ("load_balancing={ kind = 'spray', entropies = 32768 }", "load_balancing.entropies", "is too large"),
    ("congestion_control={ law = 'timely', low = '1s' }", "congestion_control.low", "is not below high"),
    ("congestion_control={ law = 'swift', flow_low = 100.0 }", "congestion_control.flow_low", "is not below flow_high"),
    ("congestion_control={ law = 'ndp' }", "congestion_control.law", "whose pulls infiniband does not know"),
    ("congestion_control={ law = 'dctcp', gain = 0.0 }", "congestion_control.gain", "is too small"),
    ("congestion_control={ law = 'dctcp', initial_alpha = 1.5 }", "congestion_control.initial_alpha", "is too large"),
    ("congestion_control={ law = 'dctcp', initial_alpha = -0.5 }", "congestion_control.initial_alpha", "is too small"),
    (
        "congestion_control={ law = 'dctcp', cut = 'never' }",
        "congestion_control.cut",
        "not one of marked, proportional, every-window",
    ),
    ("congestion_control={ law = 'dctcp', gain = nan }", "congestion_control.gain", "nan is not a number"),
    ("congestion_control={ law = 'dcqcn', raise_interval = '0us' }", "congestion_control.raise_interval", "too small"),
    ("congestion_control={ law = 'none', gain = 0.5 }", "congestion_control.gain", "no effect with law"),
    ("congestion_control={ law = 'dcqnc' }", "congestion_control.law", "'dcqnc' is not one of cubic, dcqcn, dctcp,"),
    ("congestion_control={ law = 3 }", "congestion_control.law", "is not one of"),
    ("congestion_control=dctcp", "congestion_control", "'dctcp' is no table"),
]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (("transport=cubic-100g",), "no effect on a law without ECN"),
        (("transport=dctcp-100g", "fabric.switch=pfc-100g"), "no effect with PFC or credits"),
    ],
)
def test_marks_of_a_device_need_a_queue_and_a_law_that_hears_them(overrides: tuple[str, ...], problem: str) -> None:
    packet = "transport.packet={ device_queue = true, device_mark = '9kB' }"

    assert [problem in mistake.problem for mistake in _mistakes(*overrides, packet)] == [True]


@pytest.mark.parametrize("kind", ["spray", "flowlet", "adaptive"])
def test_hpcc_wants_one_path(kind: str) -> None:
    (mistake,) = _mistakes("transport.congestion_control={ law = 'hpcc' }", f"transport.load_balancing.kind={kind}")

    assert mistake.key == "transport.load_balancing.kind"
    assert "compares packets of one path" in mistake.problem


@pytest.mark.parametrize(("override", "key", "problem"), REFUSED_TRANSPORTS)
def test_transports_that_cannot_be_are_refused(override: str, key: str, problem: str) -> None:
    (mistake,) = _mistakes(f"transport.{override}")

    assert mistake.key == f"transport.{key}"
    assert problem in mistake.problem


def test_a_misspelt_law_or_key_is_answered_with_the_closest_one() -> None:
    (law,) = _mistakes(f"{LAW}=dcqnc")
    (key,) = _mistakes("transport.congestion_control={ law = 'dcqcn', gian = 0.1 }")

    assert (law.way_out, key.way_out) == ("did you mean 'dcqcn'?", "did you mean 'gain'?")


def test_parameters_without_a_law_ask_for_one() -> None:
    (mistake,) = _mistakes("transport={ congestion_control = { gain = 0.5 } }", "transport.congestion_control.gain=0.4")

    assert (mistake.key, mistake.problem) == ("transport.congestion_control.gain", 'has no effect with law = "none"')


def test_checks_of_a_law_run_beside_other_mistakes() -> None:
    found = _mistakes("transport.congestion_control={ law = 'timely', low = '1s' }", "seed=x")

    assert {mistake.key for mistake in found} == {"transport.congestion_control.low", "seed"}


REFUSED_IN_PACKETS = [
    (["transport.packet.data_class=1"], "transport.packet.data_class", "1 is no class of the switch 'edr' with 1"),
    (["transport.packet.ack_class=1"], "transport.packet.ack_class", "1 is no class of the switch 'edr' with 1"),
    (
        ["fabric.switch=uec", "transport.packet.data_class=1"],
        "transport.packet.recovery",
        "no use for packets that the switch 'uec' trims",
    ),
    (["fabric.switch=uec", "transport.packet.recovery=selective"], "transport.packet.data_class", "is 0, the class of"),
    (["transport.switch.credits.per_class=4095B"], "transport.mtu", "credits for 4095 B, less than a full packet"),
]


@pytest.mark.parametrize(("overrides", "key", "problem"), REFUSED_IN_PACKETS)
def test_transport_and_switch_have_to_fit_in_the_packet_engine_only(
    overrides: list[str], key: str, problem: str
) -> None:
    (mistake,) = _mistakes(PACKET, *overrides)

    assert mistake.key == key
    assert problem in mistake.problem
    assert _scenario(*overrides).engine == "flow"


def test_losses_need_the_packet_engine() -> None:
    (mistake,) = _mistakes("fabric.bit_error_rate=1e-9")

    assert mistake.problem == 'has no effect with engine = "flow", which loses nothing'
    assert _scenario("fabric.bit_error_rate=1e-9", PACKET).engine == "packet"


def test_failures_are_read_with_their_times() -> None:
    failures = "fabric.failures=[{ link = 'a', from = '1us', until = '2us' }, { link = 'b->a' }]"

    first, second = _scenario(PACKET, failures).fabric.failures

    assert (first.link, first.begin, first.until) == ("a", 1_000_000, 2_000_000)
    assert (second.link, second.begin, second.until) == ("b->a", 0, None)


def test_a_failure_ends_after_it_begins_and_its_keys_are_known() -> None:
    (late,) = _mistakes("fabric.failures=[{ link = 'a', from = '2us', until = '2us' }]")
    (unknown,) = _mistakes("fabric.failures=[{ link = 'a', begin = '2us' }]")

    assert (late.key, late.problem) == ("fabric.failures[0].until", "is not later than from")
    assert unknown.key == "fabric.failures[0].begin"
    assert unknown.way_out.startswith("known here: link, switch, nic, host, gpu, from, until")


@pytest.mark.parametrize(
    ("failure", "key", "problem"),
    [
        ("from = '1us'", "link", "names nothing that fails"),
        ("link = 'a', gpu = 'gpu3'", "link", "names link and gpu, and one thing fails"),
        ("gpu = 'gpu3', rate = '1Gbps'", "gpu", "is a GPU, which is down or not"),
        ("link = 'a', mtbf = '1s'", "mtbf", "goes with mttr, the mean time to repair"),
        (
            "link = 'a', mtbf = '1s', mttr = '1s', until = '1s'",
            "mtbf",
            "draws the times that until and every would give",
        ),
        ("link = 'a', every = '1s'", "every", "has no effect without until"),
        ("link = 'a', until = '1s', every = '1s'", "every", "is no longer than one failure takes"),
        ("link = 'a', until = '1s', times = 2", "times", "has no effect without every"),
    ],
)
def test_failures_that_make_no_sense_are_refused(failure: str, key: str, problem: str) -> None:
    (mistake,) = _mistakes(f"fabric.failures=[{{ {failure} }}]")

    assert (mistake.key, mistake.problem) == (f"fabric.failures[0].{key}", problem)


def test_failures_come_again_or_at_random() -> None:
    flaps = "{ link = 'a', from = '1us', until = '2us', every = '10us', times = 3 }"
    drawn = "{ link = 'a', from = '1us', mtbf = '10us', mttr = '5us' }"
    one, other = _scenario(f"fabric.failures=[{flaps}, {drawn}]").fabric.failures

    assert [*one.intervals(lambda: 1.0)] == [(10**6 * begin, 10**6 * (begin + 1)) for begin in (1, 11, 21)]
    assert [*islice(other.intervals(lambda: 1.0), 2)] == [(11_000_000, 16_000_000), (26_000_000, 31_000_000)]


def test_another_law_drops_the_parameters_of_the_one_below() -> None:
    preset = law_in_force(_scenario(ROCE).transport)
    own = law_in_force(_scenario(ROCE, "transport.congestion_control.gain=0.5").transport)
    written = "transport.congestion_control={ law = 'dcqcn', gain = 0.5 }"
    other = law_in_force(_scenario(ROCE, written, f"{LAW}=dctcp").transport)

    assert (preset.model_dump()["law"], preset.model_dump()["gain"]) == ("dcqcn", 1 / 256)
    assert (own.model_dump()["law"], own.model_dump()["gain"]) == ("dcqcn", 0.5)
    assert (other.model_dump()["law"], other.model_dump()["gain"]) == ("dctcp", 1 / 16)


def test_a_preset_laid_over_another_keeps_what_was_written_beside_the_first() -> None:
    law = law_in_force(_scenario(ROCE, f"{LAW}=timely", "transport=roce-100g-dcqcn-paper").transport)

    assert law.law == "timely"


def test_a_static_buffer_takes_the_place_of_a_shared_one_and_back() -> None:
    static = _scenario("fabric.switch=drop-tail-100g", "fabric.switch.buffer.per_port=1MB").switch.buffer
    shared = _scenario(_switch("buffer = { per_port = '1MB' }"), "fabric.switch.buffer.shared=2MB").switch.buffer
    alpha = _scenario("fabric.switch=drop-tail-100g", "fabric.switch.buffer.alpha=0.5").switch.buffer

    assert static is not None
    assert (static.per_port, static.shared, static.alpha) == (1_000_000, None, None)
    assert shared is not None
    assert (shared.per_port, shared.shared) == (None, 2_000_000)
    assert alpha is not None
    assert (alpha.shared, alpha.alpha) == (16_000_000, 0.5)


def test_one_flow_control_takes_the_place_of_the_other() -> None:
    credits_ = _scenario("fabric.switch=spectrum-sn2700", "fabric.switch.credits.per_class=64KiB").switch
    pfc = _scenario(f"fabric.switch={{ include = 'edr', {PFC} }}").switch
    neither = _scenario("fabric.switch=edr", "fabric.switch.pfc=none").switch

    assert (credits_.pfc, credits_.buffer) == (None, None)
    assert credits_.ecn is not None
    assert (pfc.credits, pfc.pfc is None) == (None, False)
    assert neither.credits is not None


@pytest.mark.parametrize("table", ["buffer", "pfc", "ecn"])
def test_tables_of_a_switch_are_taken_out_by_none(table: str) -> None:
    without = ["fabric.switch.pfc=none"] if table == "buffer" else []
    switch = _scenario("fabric.switch=spectrum-sn2700", *without, f"fabric.switch.{table}=none").switch

    assert getattr(switch, table) is None
    assert getattr(_scenario("fabric.switch=spectrum-sn2700").switch, table) is not None


def test_dynamic_thresholds_of_a_preset_make_way_for_static_ones() -> None:
    static = [f"fabric.switch.pfc.{key}" for key in ("alpha=none", "above=200kB", "below=190kB")]
    switch = _scenario("fabric.switch=spectrum-sn2700", *static, "fabric.switch.buffer.alpha=none").switch

    assert switch.pfc is not None
    assert (switch.pfc.alpha, switch.pfc.above, switch.pfc.below) == (None, 200_000, 190_000)
    assert switch.buffer is not None
    assert switch.buffer.alpha is None


def test_a_switch_without_a_name_changes_keys_of_that_of_the_transport() -> None:
    plain, other = _scenario(ROCE).switch, _scenario(ROCE, "fabric.switch.ecn.low=300kB").switch
    credited = _scenario(ROCE, "fabric.switch.credits.per_class=64KiB").switch

    assert plain.ecn is not None
    assert other.ecn is not None
    assert (other.ecn.low, other.ecn.high) == (300_000, plain.ecn.high)
    assert other.model_copy(update={"ecn": plain.ecn}) == plain
    assert (credited.pfc, credited.buffer) == (None, None)
    assert _mistakes(ROCE, "fabric.switch.ecn.low=9GB")[0].key == "fabric.switch.ecn.low"


def test_marks_of_a_preset_become_a_step_on_the_command_line() -> None:
    step = ["fabric.switch.ecn.low=300kB", "fabric.switch.ecn.high=300kB"]
    (mistake,) = _mistakes(ROCE, *step)
    ecn = _scenario(ROCE, *step, "fabric.switch.ecn.probability=1.0").switch.ecn

    assert (mistake.key, mistake.way_out) == ("fabric.switch.ecn.probability", "take it out, or write 1.0")
    assert ecn is not None
    assert ecn.low == ecn.high


def test_another_recovery_drops_what_only_the_one_below_uses() -> None:
    packet = _scenario("transport=tcp-10g", "transport.packet.recovery=go-back-n").transport.packet

    assert packet is not None
    assert (packet.reordering, packet.ack_every) == (None, 2)


# The law of Linux, of Ethernet adapters, and none where credits keep the fabric from losing.
@pytest.mark.parametrize(
    ("kind", "law", "recovery", "timeout"),
    [
        ("tcp", "cubic", "selective", 200_000_000_000),
        ("ipoib", "cubic", "selective", 200_000_000_000),
        ("roce", "dcqcn", "go-back-n", 4_096_000 * 2**14),
        ("infiniband", "none", "go-back-n", 4_096_000 * 2**14),
        ("ideal", "none", "go-back-n", 100_000_000_000),
    ],
)
def test_a_transport_without_tables_has_the_defaults_of_its_kind(
    kind: str, law: str, recovery: str, timeout: int
) -> None:
    written = _scenario(f"transport={{ kind = '{kind}', mtu = 2044 }}").transport
    transport = written.model_copy(update={"packet": None, "congestion_control": None})

    assert law_in_force(transport).law == law
    assert setting(transport, "recovery") == recovery
    assert setting(transport, "minimum_timeout") == timeout


# InfiniBand adapters acknowledge 2^8 packets at once, which a window that moves does not wait for.
@pytest.mark.parametrize(("law", "every"), [("none", 256), ("dcqcn", 256), ("swift", 1), ("dctcp", 1)])
def test_infiniband_joins_acknowledgements_where_no_window_depends_on_them(law: str, every: int) -> None:
    assert setting(_scenario(PACKET, f"{LAW}={law}").transport, "ack_every") == every


@pytest.mark.parametrize(("window", "every"), [("1GiB", 256), ("128KiB", 16), ("12kB", 1), ("1kB", 1)])
def test_infiniband_joins_acknowledgements_of_half_a_window_at_most(window: str, every: int) -> None:
    transport = _scenario(PACKET, f"transport.packet.maximum_window={window}").transport

    assert setting(transport, "ack_every") == every


def test_a_window_that_moves_needs_acknowledgements_in_time() -> None:
    (mistake,) = _mistakes("transport.packet.ack_every=4", f"{LAW}=swift")

    assert mistake.key == "transport.packet.ack_every"
    assert mistake.problem == "4 needs ack_delay with swift: its window may be less than 4 packets"


@pytest.mark.parametrize("name", library.names("transports"))
def test_every_transport_loads_with_its_switch_in_the_packet_engine(name: str) -> None:
    assert _scenario(PACKET, f"transport={name}").transport.congestion_control is not None


def test_presets_have_the_figures_of_their_sources() -> None:
    """PFC at 1/8 and marks at 400 kB and 1600 kB: 100 and 400 kB per 25 Gb/s, as published with HPCC."""
    spectrum = _scenario("fabric.switch=spectrum-sn2700").switch
    dctcp = _scenario("fabric.switch=dctcp-100g").switch

    assert spectrum.pfc is not None
    assert spectrum.ecn is not None
    assert dctcp.ecn is not None
    assert spectrum.pfc.alpha == 1 / 8
    assert spectrum.pfc.headroom == 4 * 25_632
    assert (spectrum.ecn.low, spectrum.ecn.high, spectrum.ecn.probability) == (4 * 100_000, 4 * 400_000, 0.2)
    assert (dctcp.ecn.low, dctcp.ecn.high) == (10 * 30_000, 10 * 30_000)
    assert _scenario("fabric.switch=pfc-100g").switch.ecn is None


def test_another_topology_drops_the_keys_that_it_has_no_use_for() -> None:
    tiers = "fabric={ topology = 'leaf-spine', hosts_per_leaf = 4, spines = 2, link_rate = '10Gbps' }"

    fabric = _scenario(tiers, "fabric.topology=fat-tree").fabric
    (mistake,) = _mistakes(tiers, "fabric.topology=fat-tree", "fabric.spines=2")

    assert (fabric.model_fields_set & {"hosts_per_leaf", "spines"}, fabric.link_rate) == (set(), 10e9 / 8)
    assert mistake.key == "fabric.spines"
