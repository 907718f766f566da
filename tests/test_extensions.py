from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from fabricsim import extensions
from fabricsim.errors import InputError, ScenarioError, SimulationError
from fabricsim.extensions import Registry
from fabricsim.results.validation import Validation
from fabricsim.run.pipeline import load_any, simulate
from fabricsim.scenario.collectives import ALGORITHMS
from fabricsim.scenario.fabric import TOPOLOGIES
from fabricsim.scenario.load import from_tables, load
from fabricsim.scenario.network import Ends
from fabricsim.scenario.schedule import SCHEDULES
from fabricsim.studies.frame.study import Study, study_of
from fabricsim.topology.wires import network_of
from fabricsim.traces.form import FORMS

TOPOLOGY = """
from __future__ import annotations

from fabricsim.scenario.fabric import FabricSpec
from fabricsim.scenario.network import Network


class Mine(FabricSpec):
    ways: int = 1

    def network(self, ends):
        network = Network.of(ends)
        for end in range(ends.count):
            network.join(ends.name(end), "switch0", self.down)
        return network


TOPOLOGY = Mine
"""


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_files", {})


def written(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_that_was_run_is_found_by_its_path_and_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    name = written(tmp_path, TOPOLOGY)

    assert TOPOLOGIES.find(name) is None
    digest = extensions.run(name)

    found = TOPOLOGIES.find(name)
    assert found is not None
    assert found.model_fields["ways"].default == 1
    assert TOPOLOGIES.all()[name] is found
    assert digest == TOPOLOGIES.digest(name) == hashlib.sha256(TOPOLOGY.encode()).hexdigest()


def test_a_topology_without_a_network_is_refused_with_its_file(tmp_path: Path) -> None:
    """It inherits that of all topologies, which joins nothing."""
    name = written(tmp_path, TOPOLOGY.replace("def network", "def net"))

    with pytest.raises(SimulationError, match=r"/mine\.py: Mine has no network; define network\(self, ends\)"):
        simulate(load("gpt2-medium-dp", {"fabric": {"topology": name}}))


def test_an_edited_file_is_another_module(tmp_path: Path) -> None:
    name = written(tmp_path, TOPOLOGY)
    extensions.run(name)
    earlier = TOPOLOGIES.find(name)

    extensions.run(name)
    assert TOPOLOGIES.find(name) is earlier

    extensions.run(written(tmp_path, TOPOLOGY.replace("ways", "rows")))
    later = TOPOLOGIES.find(name)
    assert later is not None
    assert set(later.model_fields) - set(earlier.model_fields if earlier else ()) == {"rows"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n\ny = 1 / 0\n", r"mine\.py:3: cannot be imported: ZeroDivisionError"),
        ("x =\n", r"mine\.py:1: cannot be imported: SyntaxError"),
        ("raise SystemExit(3)\n", r"mine\.py:1: cannot be imported: SystemExit"),
        ("x = 1\0", "cannot be imported"),
        ("#" * (extensions.LARGEST + 1), "is larger than"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        extensions.run(written(tmp_path, text))


@pytest.mark.parametrize(
    ("module", "declaration", "said"),
    [
        ("scenario.schedule", "Schedule('in-order', 5)", "schedule 'in-order': steps is 5"),
        ("collectives", "Algorithm('star', {'all_reduce': {}})", "algorithm 'star': all_reduce is {}"),
        ("collectives", "Algorithm('star', {'all_reduce': by_rank(5)})", "by_rank: steps is 5"),
        ("collectives", "by_rank(len, shards='x')", "by_rank: shards is 'x'"),
        ("traces.form", "Form('steps', 'x', len, 5)", "form 'steps': read is 5"),
        ("traces.form", "Form('steps', 'x', 5, len)", "form 'steps': recognises is 5"),
        ("studies.frame.study", "Study('mine', '', 5)", "study 'mine': compare is 5"),
        ("studies.frame.study", "Study('mine', '', len, 5)", "study 'mine': pictures is 5"),
        ("studies.frame.study", "Study('mine', '', len, uncertain=5)", "study 'mine': uncertain is 5"),
        ("studies.frame.study", "Study('mine', '', len, against='the sun')", "study 'mine': against is 'the sun'"),
        ("studies.frame.study", "by_row('mine', '', 5, statistics=len, pictures=len)", "study 'mine': rows is 5"),
    ],
)
def test_what_a_declaration_should_not_have_is_said_with_its_line(
    tmp_path: Path, module: str, declaration: str, said: str
) -> None:
    text = f"from fabricsim.{module} import *\nfrom fabricsim.collectives import by_rank\nFOUND = {declaration}\n"

    with pytest.raises(InputError, match=rf"mine\.py:3: cannot be imported: InputError: {said}; give "):
        extensions.run(written(tmp_path, text))


def test_files_that_are_not_there_are_named() -> None:
    for name in ("nowhere.py", "/", "nul\0.py"):
        with pytest.raises(InputError, match=r"no such file|cannot be read"):
            extensions.run(name)


@pytest.mark.parametrize(
    "text", ["x = 1\n", "TOPOLOGY = 7\n", "TOPOLOGY = int\n", f"{TOPOLOGY}TOPOLOGY = Mine(topology='x')\n"]
)
def test_a_file_without_the_declaration_says_what_is_missing(tmp_path: Path, text: str) -> None:
    name = written(tmp_path, text)
    extensions.run(name)

    with pytest.raises(
        InputError, match=r"mine\.py: TOPOLOGY .* should be a subclass of fabricsim\.scenario\.fabric\.FabricSpec"
    ):
        TOPOLOGIES.find(name)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ways: int = 'many'", r"fabric\.ways: 'many' is no whole number"),
        (
            "ways: int = 1\n    routings = 'ecmp'",
            r"mine\.py:\d+: .* TypeError: Mine\.routings is 'ecmp'; it should be a tuple",
        ),
        (
            "ways: int = 1\n    radix: str = 'x'",
            r"mine\.py:8: .* Mine\.radix is of another type than FabricSpec\.radix; call",
        ),
        ("ways: int = 1\n    topology: int = 3", r"mine\.py:8: .* TypeError: Mine\.topology is of another type than"),
    ],
)
def test_keys_and_constants_of_a_users_topology_are_of_their_types(tmp_path: Path, line: str, said: str) -> None:
    assert "ways: int = 1" in TOPOLOGY
    name = written(tmp_path, TOPOLOGY.replace("ways: int = 1", line))

    with pytest.raises(InputError, match=said):
        load("ideal-16", [f"fabric.topology={name}"])


NETWORK_LINES = TOPOLOGY.split("def network", maxsplit=1)[0].count("\n") + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("        return network\n", "", rf":{NETWORK_LINES}: Mine\.network gives None; it should give a .*\.Network$"),
        ("return network", "raise SystemExit(3)", rf":{NETWORK_LINES + 4}: Mine\.network raises SystemExit: 3$"),
        ("ends.count)", "ends.counts)", rf":{NETWORK_LINES + 2}: Mine\.network raises AttributeError: .* 'counts'"),
        ("(self, ends)", "(self)", rf":{NETWORK_LINES}: Mine\.network raises TypeError: .* takes 1 positional"),
    ],
)
def test_what_goes_wrong_in_a_users_function_is_said_with_its_line(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    assert before in TOPOLOGY
    name = written(tmp_path, TOPOLOGY.replace(before, after))

    with pytest.raises(InputError, match=rf"^{re.escape(name)}{said}"):
        network_of(load("ideal-16", [f"fabric.topology={name}"]).scenario.fabric, Ends(4))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("self.down", "'100Gbps'", "TypeError: host0 and switch0 are joined by '100Gbps'; give a cable, such as"),
        ("self.down", "Cable('100Gbps')", r"TypeError: host0 and switch0 are joined by Cable\(rate='100Gbps'"),
        ("self.down", "Cable(0)", r"TypeError: host0 and switch0 are joined by Cable\(rate=0,"),
        ("self.down", "Cable(cost='1')", r"TypeError: host0 and switch0 are joined by Cable\(rate=None, "),
        ("self.down", "self.down, 0", "ValueError: host0 and switch0 are joined by 0 cables; give a whole number"),
        ("self.down", "self.down, 1.0", r"ValueError: host0 and switch0 are joined by 1\.0 cables; give a whole"),
        (
            "self.down",
            "self.down, 2**30",
            "ValueError: host0 and switch0 are joined by cable 1073741824, at most 2097152",
        ),
        ('"switch0"', '"host0"', "ValueError: host0 is joined to itself; name two nodes"),
        ('"switch0"', "5", "TypeError: a node is called 5; write its name as text"),
        ("ends.count)", "ends.count + 1)", "ValueError: 'host4' is not there: there are host0 to host3; a switch is"),
        ("Network.of(ends)", "Network()", r"ValueError: 'host0' is not there: begin with Network\.of\(ends\)"),
    ],
)
def test_cables_of_a_users_topology_are_looked_at_one_by_one(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    head, network = TOPOLOGY.replace("import Network", "import Cable, Network").split("def network", maxsplit=1)
    assert before in network
    name = written(tmp_path, f"{head}def network{network.replace(before, after, 1)}")

    with pytest.raises(InputError, match=rf"^{re.escape(name)}:{NETWORK_LINES + 3}: Mine\.network raises {said}"):
        network_of(load("ideal-16", [f"fabric.topology={name}"]).scenario.fabric, Ends(4))


def test_cables_of_a_users_topology_are_counted_as_they_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(tmp_path, TOPOLOGY)
    fabric = load("ideal-16", [f"fabric.topology={name}"]).scenario.fabric
    monkeypatch.setattr("fabricsim.scenario.network.MOST_CABLES", 3)

    with pytest.raises(
        InputError, match=r"host3 and switch0 are joined by cable 4, at most 3 can be built; join fewer"
    ):
        network_of(fabric, Ends(4))
    assert len(network_of(fabric, Ends(3)).links) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("7", r":\d+: Mine\.size gives 7; it should give a fabricsim\.scenario\.network\.FabricSize or None$"),
        ("1 / 0", r":\d+: Mine\.size raises ZeroDivisionError: division by zero$"),
        (
            "FabricSize('many', 1, 1)",
            r":\d+: FabricSize\(cables='many', .*\) has something else than whole numbers from 0 up$",
        ),
        (
            "FabricSize(1, -1, 1)",
            r":\d+: FabricSize\(cables=1, ports=-1, .*\) has something else than whole numbers from 0 up$",
        ),
    ],
)
def test_a_size_that_a_users_topology_does_not_count_is_said(tmp_path: Path, size: str, said: str) -> None:
    count = f"        from fabricsim.scenario.network import FabricSize\n        return {size}\n"
    text = TOPOLOGY.replace("    def network", f"    def size(self, ends):\n{count}\n    def network")
    name = written(tmp_path, text)

    with pytest.raises(InputError, match=rf"^{re.escape(name)}{said}"):
        load("ideal-16", [f"fabric.topology={name}"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problems", "said"),
    [
        ("return None", r"mine\.py:\d+: Mine\.problems raises TypeError: 'NoneType' object is not iterable"),
        ("yield 'no'", r"mine\.py:\d+: Mine\.problems gives 'no'; it should give a fabricsim\.errors\.Mistake"),
        ("yield Mistake('ways', 'too many')", r"fabric\.ways: too many"),
    ],
)
def test_problems_that_a_users_topology_finds_are_mistakes(tmp_path: Path, problems: str, said: str) -> None:
    text = TOPOLOGY.replace("    def network", f"    def problems(self, ends):\n        {problems}\n\n    def network")
    name = written(
        tmp_path, "from fabricsim.errors import Mistake\n" + text.replace("from __future__ import annotations\n", "")
    )

    with pytest.raises(InputError, match=said):
        load("ideal-16", [f"fabric.topology={name}"])


def test_errors_of_fabricsim_and_of_its_own_functions_stay_as_they_are() -> None:
    def wrong() -> None:
        raise InputError("mine")

    with pytest.raises(InputError, match=r"^mine$"):
        extensions.answer(wrong, object)
    with pytest.raises(TypeError):
        extensions.answer(extensions.is_file, bool)


def test_a_function_of_fabricsim_that_calls_a_users_names_the_user(tmp_path: Path) -> None:
    name = written(tmp_path, "STUDY = by_row('mine', '', lambda: 1 / 0, statistics=len, pictures=list)\n")
    text = f"from fabricsim.studies.frame.study import by_row\n{Path(name).read_text('utf-8')}"

    with pytest.raises(InputError, match=r"mine\.py:2: .* raises ZeroDivisionError: division by zero"):
        study_of(written(tmp_path, text)).validate()


@pytest.mark.parametrize(
    ("summary", "pictures", "said"),
    [
        ({"x": float("nan")}, [], "study mine: Out of range .*; give finite numbers and text"),
        ({"x": Path("y")}, [], "study mine: PosixPath.* has no JSON form; give finite"),
        ({}, [("a.svg", 3)], r"study mine: pictures gives \('a\.svg', 3\); give names and figures"),
        ({}, [("../a.svg", Figure())], "study mine: pictures gives .*; give names and figures"),
    ],
)
def test_what_a_study_finds_and_draws_can_be_written(
    tmp_path: Path, summary: dict[str, Any], pictures: list[tuple[str, Any]], said: str
) -> None:
    study = Study("mine", "", lambda _: Validation("mine", [], summary), lambda _: pictures)

    with pytest.raises(InputError, match=said):
        study.draw(study.validate(), tmp_path)


def test_a_key_that_hides_a_function_is_refused(tmp_path: Path) -> None:
    name = written(tmp_path, TOPOLOGY.replace("ways: int", "ends_of_cable: int = 1\n    problems: int"))
    with pytest.warns(UserWarning, match="shadows"), pytest.raises(InputError) as caught:
        load("ideal-16", [f"fabric.topology={name}"])
    assert re.search(r"mine\.py: the key 'problems' of Mine hides the function \w+\.problems; name", str(caught.value))


def test_a_declaration_is_no_class_where_an_instance_is_needed(tmp_path: Path) -> None:
    name = written(tmp_path, "from fabricsim.traces.form import Form as FORM\n")
    extensions.run(name)

    with pytest.raises(InputError, match=r"FORM is <class .*; it should be a fabricsim\.traces\.form\.Form$"):
        FORMS.find(name)


def test_a_key_of_all_topologies_may_be_narrower_in_a_users(tmp_path: Path) -> None:
    keys = "radix: int = 64\n    routing: Literal['ecmp'] = 'ecmp'"
    text = TOPOLOGY.replace("ways: int = 1", keys).replace("annotations\n", "annotations\nfrom typing import Literal\n")

    fabric = load("ideal-16", [f"fabric.topology={written(tmp_path, text)}"]).scenario.fabric
    assert (fabric.radix, fabric.routing) == (64, "ecmp")


def test_files_of_a_result_are_known_by_their_digest(tmp_path: Path) -> None:
    name = written(tmp_path, TOPOLOGY)
    digest = hashlib.sha256(TOPOLOGY.encode()).hexdigest()

    extensions.supply({"elsewhere/its.py": digest}, [name])
    assert TOPOLOGIES.digest("elsewhere/its.py") == digest

    with pytest.raises(InputError, match=r"the result was made with elsewhere/its\.py \(SHA-256 0000"):
        extensions.supply({"elsewhere/its.py": "0000"}, [name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "module"), [("mine", "their_module"), ("mine", "whole"), ("fat-tree", "their_module")]
)
def test_installed_distributions_add_theirs_by_entry_points(tmp_path: Path, name: str, module: str) -> None:
    (tmp_path / "their_module.py").write_text(TOPOLOGY, encoding="utf-8")
    (tmp_path / "whole.py").write_text("from their_module import TOPOLOGY\n", encoding="utf-8")  # passes it on
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[fabricsim.topologies]\n{name} = {module}:TOPOLOGY\n", encoding="utf-8")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from fabricsim.scenario.fabric import TOPOLOGIES
from fabricsim.scenario.load import from_tables, load
print(TOPOLOGIES.all()[{name!r}].__name__, TOPOLOGIES.digest({name!r}))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603  our own

    if name == "mine":
        assert run.stdout.split() == ["Mine", hashlib.sha256(TOPOLOGY.encode()).hexdigest()], run.stderr
    else:
        assert "fat-tree = their_module:TOPOLOGY of theirs: topologies of that name are there already" in run.stderr


def scenario(folder: Path) -> Path:
    written(folder, TOPOLOGY)
    path = folder / "mine.toml"
    path.write_text('extends = "gpt2-medium-dp"\nfabric.topology = "mine.py"\nfabric.ways = 2\n', encoding="utf-8")
    return path


def test_a_scenario_names_a_file_beside_it_and_has_its_digest(tmp_path: Path) -> None:
    loaded = load(scenario(tmp_path))
    name = str(tmp_path / "mine.py")

    assert type(loaded.scenario.fabric) is TOPOLOGIES.find(name)
    assert loaded.resolved["extensions"] == {name: hashlib.sha256(TOPOLOGY.encode()).hexdigest()}
    assert loaded.scenario.extensions == loaded.resolved["extensions"]
    assert from_tables(loaded.resolved) == loaded.scenario
    with pytest.raises(InputError, match=r"ways: 'x' is no whole number"):
        load(scenario(tmp_path), ["fabric.ways=x"])
    other = load(scenario(tmp_path), ["fabric.topology=fat-tree"])
    assert "extensions" not in other.resolved
    assert "ways" not in other.resolved["fabric"]


def test_tables_of_a_result_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "was-run"
    tables = load(scenario(tmp_path)).resolved
    monkeypatch.setattr(extensions, "_files", {})
    written(tmp_path, f"from pathlib import Path\nPath({str(marker)!r}).touch()\n{TOPOLOGY}")
    preset = tmp_path / "preset.toml"
    preset.write_text('topology = "mine.py"\n', encoding="utf-8")

    for forged in (
        tables,
        {key: table for key, table in tables.items() if key != "extensions"},
        {**tables, "fabric": str(preset), "extensions": {}},
        {**tables, "fabric": {"include": str(preset), "ways": 2}, "extensions": {}},
    ):
        with pytest.raises(ScenarioError):
            from_tables(forged)
    assert not marker.exists()


def test_a_file_that_was_edited_is_not_the_one_of_a_result(tmp_path: Path) -> None:
    tables = load(scenario(tmp_path)).resolved
    load(scenario(tmp_path))
    extensions.run(written(tmp_path, TOPOLOGY + "# edited\n"))

    with pytest.raises(ScenarioError, match=r"of SHA-256 [0-9a-f]{64} is needed, and has SHA-256"):
        from_tables(tables)


def test_a_loaded_scenario_keeps_the_file_that_it_was_loaded_with(tmp_path: Path) -> None:
    loaded = load(scenario(tmp_path))
    name = str(tmp_path / "mine.py")
    first = TOPOLOGIES.find(name)
    extensions.run(written(tmp_path, TOPOLOGY + "# edited\n"))
    assert TOPOLOGIES.find(name) is not first

    assert load_any(loaded, None) is loaded
    assert TOPOLOGIES.find(name) is first


@pytest.mark.parametrize(
    ("registry", "page", "written_as"),
    [
        (TOPOLOGIES, "scenario.md", '`"{}"`'),
        (SCHEDULES, "scenario.md", '`"{}"`'),
        (ALGORITHMS, "collectives.md", "`{}`"),
        (FORMS, "traces.md", "{}"),
    ],
    ids=["topologies", "schedules", "collectives", "traces"],
)
def test_the_reference_has_all_that_modules_declare(registry: Registry[Any], page: str, written_as: str) -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "reference" / page).read_text(encoding="utf-8")

    assert [name for name in registry.own if written_as.format(name) not in text] == []
