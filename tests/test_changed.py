"""Which tests `.ci/changed` runs for what changed."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "tests/engine/test_replay.py": "from fabricsim.engine.flow.world import World",
    "tests/jit/test_cache.py": "import fabricsim.jit.cache",
    "tests/kernels/test_maxmin.py": "def test(filling): ...",
    "tests/traces/test_goal.py": "from fabricsim.traces.goal import reader as goal",
    "tests/workload/test_memory.py": "",
}


def run_for(*names: str) -> set[str]:
    loader = SourceFileLoader("changed", str(ROOT / ".ci" / "changed"))
    spec = spec_from_loader("changed", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return set(module.tests_of(list(names), TESTS)) - set(module.ALWAYS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fabricsim/workload/memory.py", "tests/workload/test_memory.py"),
        ("fabricsim/engine/flow/world.py", "tests/engine/test_replay.py"),
        ("fabricsim/traces/goal/reader.py", "tests/traces/test_goal.py"),
        ("fabricsim/jit/cache.py", "tests/jit/test_cache.py"),
        ("fabricsim/traces/goal/writer.py", "tests/traces"),  # nothing mirrors or imports it
        ("tests/reference/filling.py", "tests/kernels/test_maxmin.py"),
        ("tests/traces/test_goal.py", "tests/traces/test_goal.py"),
        ("README.md", "tests/test_docs.py"),
        ("benchmarks/conftest.py", "benchmarks"),
        ("benchmarks/test_ring.py", "benchmarks/test_ring.py"),
    ],
)
def test_what_mirrors_or_imports_a_module_is_run(name: str, expected: str) -> None:
    assert run_for(name) == {expected}


def test_a_test_within_a_folder_that_is_run_is_not_named_twice() -> None:
    assert run_for("fabricsim/traces/goal/writer.py", "tests/traces/test_goal.py") == {"tests/traces"}


def test_nothing_but_the_general_tests_if_nothing_changed() -> None:
    assert run_for() == set()
