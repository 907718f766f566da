"""A user's law and load-balancing rule, as the how-to page has them: the same events in both packet engines."""

from __future__ import annotations

import random
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import simpy

from fabricsim import extensions, load
from fabricsim.engine.fabric import Fabric
from fabricsim.errors import InputError
from fabricsim.extensions import Registry
from fabricsim.jit.compile import DISABLED
from fabricsim.run.traffic import request
from fabricsim.scenario.balancing import RULES
from fabricsim.scenario.congestion import LAWS
from fabricsim.transports.dispatch import Dispatch, dispatch
from tests.reference import packet_cases, packet_runs

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "own-law.md"
US = 1_000_000  # ps


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_files", {})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def _settings(files: Path) -> list[str]:
    law, rule = (f"{files / name}.py" for name in ("aimd", "two"))
    return [
        "fabric.topology=fat-tree",
        "transport.switch.ecn.low=60kB",
        "transport.switch.ecn.high=60kB",
        "transport.packet.recovery=selective",
        "transport.packet.reordering=1000",
        f"transport.congestion_control.law={law}",
        "transport.congestion_control.step=2.0",
        f"transport.load_balancing.kind={rule}",
    ]


def _sent(engine: str, files: Path) -> tuple[list[int], Any]:
    """Times at which a permutation is delivered, and the network."""
    scenario = load("ideal-16", [f"engine={engine}", *_settings(files)]).scenario
    env = simpy.Environment()
    fabric = Fabric(env, scenario, time_unit=1)
    flows = request("permutation", scenario, size="200kB").flows
    return list(env.run(fabric.send_all(flows, [0] * len(flows)))), fabric.world.network


@pytest.mark.slow
def test_a_scenario_names_them_and_runs_alike_in_both_engines(files: Path) -> None:
    times, network = _sent("packet", files)
    reference, _ = _sent("reference", files)

    assert times == reference
    assert len(network.dispatch.laws) == len(network.dispatch.rules) == 1
    row = network.laws[0]
    assert (row["step"], row["factor"], row["margin"], row["weighs"], row["ecn"]) == (2.0, 0.5, 1000, 1, 1)
    assert network.flows["cut_at"].max() > 0  # marks had the law act


@pytest.mark.slow
def test_each_packet_goes_alike_in_both_engines(files: Path) -> None:
    names = [str(files / name) for name in ("aimd.py", "two.py")]
    for name in names:
        extensions.run(name)
    law, rule = LAWS.find(names[0]), RULES.find(names[1])
    assert law is not None
    assert rule is not None

    for seed in range(8):
        rng = random.Random(seed)  # noqa: S311  no secret
        packets = rng.randint(2, 12)
        options = packet_cases.Options(limit=packets * 1064, mark_low=1064, mark_high=2 * 1064, bit_error_rate=1e-6)
        builder = packet_cases.leaves_and_spine(4, 100.0, 25.0, US, options)
        builder.dispatch, builder.seed = Dispatch((law,), (rule,)), seed
        selective = {"recovery": 1, "span": 128, "payload": 1000, "maximum_window": 40.0, "initial_window": 10.0}
        own = {"law": 0, "balance": 0, "step": 1.0, "factor": 0.5, "pause": 5 * US, "margin": 1000}
        timers = dict.fromkeys(("initial_timeout", "minimum_timeout"), 100 * US)
        builder.add_law(**selective, **own, **timers)
        for _ in range(5):
            builder.add_flow(*rng.sample(range(4), 2))
        posts = packet_cases.draw_posts(rng, 5, 1000)
        case = packet_cases.Case(builder.build(), posts, packet_cases.END, f"seed {seed}", builder.dispatch)
        expected, found = packet_runs.reference(case), packet_runs.Compiled(case).run()
        assert found == expected
        assert len(expected.deliveries) == len(posts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("def time_out(", "def timeout(", r"aimd\.py: has no kernel time_out\(flow, law, now\)"),
        ('"cut_at": np.int64', '"in_flight": np.int64', r"aimd\.py: state of Aimd: 'in_flight' is taken"),
        (
            '"cut_at": np.int64',
            '"cut_at": "int46"',
            r"aimd\.py: state of Aimd is {'cut_at': 'int46'}; write types by name",
        ),
        ('state = {"cut_at": np.int64}', 'state = ["cut_at"]', r"aimd\.py: state of Aimd is \['cut_at'\]; write types"),
        (
            '"step": np.float64',
            '"stop": np.float64, "step": np.float64',
            r"aimd\.py: no key fills the parameter 'stop'",
        ),
        (
            "@kernel\ndef start(",
            "@kernel\ndef notfy(f):\n    pass\n\n\n@kernel\ndef start(",
            r"nothing calls notfy: write notify\(",
        ),
        ("LAW = Aimd", "", r"aimd\.py: LAW is missing"),
        ("LAW = Aimd", "LAW = 3", r"aimd\.py: LAW is 3; it should be a"),
        (
            "ecn = True",
            'ecn = "yes"',
            r"aimd\.py:9: cannot be imported: TypeError: Aimd\.ecn is 'yes'; it should be a bool",
        ),
        (
            "LAW = Aimd",
            "    def columns(self, line_rate, packet):\n        return {'stop': 1}\n\n\nLAW = Aimd",
            r"aimd\.py: `columns` gives 'stop', which is no parameter; it may give cnp_interval, factor",
        ),
        (
            "LAW = Aimd",
            "    def columns(self, line_rate, packet):\n        return {'step': 'much'}\n\n\nLAW = Aimd",
            r"aimd\.py: the parameter 'step', float64, is given 'much'; give a number",
        ),
        (
            "LAW = Aimd",
            "    def columns(self, line_rate, packet):\n        return {'step': np.nan}\n\n\nLAW = Aimd",
            r"the parameter 'step', float64, is given nan",
        ),
        (
            "LAW = Aimd",
            "    def columns(self, line_rate, packet):\n        return {'pause': 1.5}\n\n\nLAW = Aimd",
            r"the parameter 'pause', int64, is given 1\.5",
        ),
        (
            "LAW = Aimd",
            "    def columns(self, line_rate, packet):\n        return {'pause': 2**70}\n\n\nLAW = Aimd",
            r"the parameter 'pause', int64, is given 1180591620717411303424",
        ),
        ("step: Packets", 'step: "Pakets"', r"aimd\.py:17: Aimd has an annotation .* name 'Pakets' is not defined$"),
        ("step: Packets", "step: Pakets", r"aimd\.py:17: cannot be imported: NameError: name 'Pakets' is not defined$"),
    ],
)
def test_what_a_law_lacks_is_said(files: Path, before: str, after: str, problem: str) -> None:
    text = (files / "aimd.py").read_text("utf-8")
    assert before in text
    (files / "aimd.py").write_text(text.replace(before, after), encoding="utf-8")

    with pytest.raises(InputError, match=problem):
        Fabric(simpy.Environment(), load("ideal-16", ["engine=packet", *_settings(files)]).scenario)
    cubic = ["engine=packet", "transport.congestion_control.law=cubic"]  # other files' mistakes stay theirs
    assert load("ideal-16", cubic).scenario.transport.congestion_control.law == "cubic"  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_rule_without_kernels_is_refused(files: Path) -> None:
    text = (files / "two.py").read_text("utf-8")
    (files / "two.py").write_text(text.replace("def weigh(", "def weight("), encoding="utf-8")

    with pytest.raises(InputError, match=r"two\.py: has neither of the kernels renew and weigh"):
        Fabric(simpy.Environment(), load("ideal-16", ["engine=packet", *_settings(files)]).scenario)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("max(flow", "mx(flow", r"aimd\.py:LINE: kernel \w+ cannot be compiled: NameError: name 'mx' is not defined;"),
        (
            "flow.cut_at = now",
            "flow.cut_of = now",
            r"aimd\.py:LINE: kernel \w+ cannot .*: there is no column 'cut_of', add",
        ),
        ("law.factor", "law.fctor", r"aimd\.py:LINE: kernel \w+ cannot .*: there is no column 'fctor', add"),
        ("flow.cut_at = 0", "flow.cut_at = 'never'", r"aimd\.py:LINE: kernel start cannot .*: Cannot cast"),
        (
            "@kernel\ndef _cut",
            "def _cut",
            r"aimd\.py:\d+: kernel acknowledge cannot .*: _cut is called and is no kernel",
        ),
        (
            "flow.cut_at = now",
            "flow.in_flight = 0",
            r"aimd\.py:LINE: kernel _cut sets 'in_flight', which is not its own",
        ),
        ("flow.cut_at = now", "flow['posted'] += 1", r"aimd\.py:LINE: kernel _cut sets 'posted', which is not its own"),
        ("flow.cut_at = now", "law.factor = 0.25", r"aimd\.py:LINE: kernel _cut sets 'factor', which is not its own"),
        (
            "flow.cut_at = now",
            "flow.rate = 5.0",
            r"aimd\.py:LINE: .*; it may set window, threshold, rate = np\.inf, cut_at;",
        ),
        ("@kernel\ndef time_out", "def time_out", r"aimd\.py:\d+: time_out is no kernel; write @kernel above it"),
        (
            "lose(flow, law, now)",
            "lose(flow, law)",
            r"kernel lose takes 2 arguments; write it as lose\(flow, law, now\)",
        ),
    ],
)
@pytest.mark.skipif(DISABLED, reason="kernels are not compiled")
def test_a_kernel_that_does_not_compile_is_one_error(files: Path, before: str, after: str, problem: str) -> None:
    text = (files / "aimd.py").read_text("utf-8")
    assert before in text
    (files / "aimd.py").write_text(text.replace(before, after), encoding="utf-8")
    line = text[: text.index(before)].count("\n") + 1

    with pytest.raises(InputError, match=problem.replace("LINE", str(line))) as caught:
        Fabric(simpy.Environment(), load("ideal-16", ["engine=packet", *_settings(files)]).scenario)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("np.int64(2**60)", "None", "weigh can give None; return a whole number"),
        ("return drain", "pass  #", "weigh can give None; return"),
        ("np.int64(2**60)", "2.0**60", "weigh gives float64; return"),
        ("weigh(law, place, drain)", "renew(flow, law, now)", "renew can give None; return"),
    ],
)
@pytest.mark.skipif(DISABLED, reason="kernels are not compiled")
def test_a_rule_answers_with_a_whole_number(files: Path, before: str, after: str, problem: str) -> None:
    text = (files / "two.py").read_text("utf-8")
    assert before in text
    changed = text.replace(before, after)
    if "renew" in after:
        changed = f"{changed[: changed.index('    return drain')]}    pass\n"
    (files / "two.py").write_text(changed, encoding="utf-8")
    line = text[: text.index("def weigh")].count("\n")

    with pytest.raises(InputError, match=rf"two\.py:{line}: kernel {problem}"):
        dispatch(load("ideal-16", ["engine=packet", *_settings(files)]).scenario.transport)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attribute", "registry"), [("aimd", "LAW", LAWS), ("two", "BALANCING", RULES)])
def test_installed_ones_are_known_by_their_entry_points(
    files: Path, name: str, attribute: str, registry: Registry[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = files / "own-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n", encoding="utf-8")
    points = f"[fabricsim.{registry.kind}]\n{name}-installed = own_{name}:{attribute}\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    (files / f"{name}.py").rename(files / f"own_{name}.py")
    monkeypatch.syspath_prepend(files)
    monkeypatch.setattr(extensions, "_entry_points", entry_points)
    monkeypatch.delitem(vars(registry), "installed", raising=False)
    key = "congestion_control.law" if registry is LAWS else "load_balancing.kind"

    transport = load("ideal-16", ["engine=packet", f"transport.{key}={name}-installed"]).scenario.transport

    found = transport.congestion_control if registry is LAWS else transport.load_balancing
    assert type(found) is registry.find(f"{name}-installed")
    del vars(registry)["installed"]  # what other tests find anew


def test_two_files_are_two_programs_and_the_same_text_is_one(files: Path, tmp_path: Path) -> None:
    from fabricsim.engine.packet.state import network_of  # noqa: PLC0415  imports numba

    text = (files / "aimd.py").read_text("utf-8")
    names = []
    for name, change in (("one", text), ("comment", f"{text}# more\n"), ("other", text.replace("law.step *", "2.0 *"))):
        (tmp_path / f"{name}.py").write_text(change, encoding="utf-8")
        extensions.run(str(tmp_path / f"{name}.py"))
        law = LAWS.find(str(tmp_path / f"{name}.py"))
        assert law is not None
        kind = network_of(Dispatch((law,), (RULES.own["ecmp"],)))
        names.append(kind._numba_type_.name)

    assert names[0] == names[1] != names[2]
