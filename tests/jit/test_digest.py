"""Which edits of sources make compiled kernels others: comments do not, whatever a kernel reads does."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

import pytest

from fabricsim.jit.digest import PACKAGE, digest, sources

FLOW, PACKET = "engine/flow/kernels/main_loop.py", "engine/packet/kernels/main_loop.py"
PATHS = "topology/shortest_paths.py"


def copy(folder: Path) -> Path:
    package = folder / "fabricsim"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


@functools.cache
def unchanged(entry: str) -> str:
    return digest(PACKAGE / entry)


def changed(folder: Path, name: str, before: str, after: str) -> set[str]:
    """The main loops whose programs an edit of a file makes others."""
    other = copy(folder)
    text = (other / name).read_text("utf-8")
    assert before in text
    (other / name).write_text(text.replace(before, after, 1), encoding="utf-8")
    return {entry for entry in (FLOW, PACKET, PATHS) if digest(other / entry, other) != unchanged(entry)}


@pytest.mark.slow
def test_where_a_package_lies_makes_no_difference(tmp_path: Path) -> None:
    package = copy(tmp_path)
    assert digest(package / PACKET, package) == digest(PACKAGE / PACKET)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "engine/flow/kernels/maxmin.py",
            "    route = sim.routes[",
            "    # a comment, and lines\n\n    route = sim.routes[",
        ),
        ("engine/flow/kernels/maxmin.py", '    """Enter a flow into', '    """Put a flow into'),  # of a function
        ("engine/flow/kernels/flows.py", '"""Flows: messages', '"""Messages'),  # of a module
        ("records/program.py", '"""No index."""', '"""None."""'),  # of a constant
        ("jit/cache.py", "_BEGAN = time.time()", "_BEGAN = time.time() + 0"),  # holds no kernel
        ("transports/parameters.py", "def ", "# a comment\ndef "),
        ("transports/parameters.py", "from __future__", "_UNUSED = 1\nfrom __future__"),
        ("transports/base.py", "from __future__", "_UNUSED = 1\nfrom __future__"),
    ],
)
def test_what_no_kernel_reads_changes_no_program(tmp_path: Path, name: str, before: str, after: str) -> None:
    assert changed(tmp_path, name, before, after) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "before", "after", "programs"),
    [
        # kernels that others call, in files of their own
        ("engine/flow/kernels/maxmin.py", "alone = True", "alone = 1", {FLOW}),
        ("engine/program/lane.py", "blocked = 1", "blocked = 2", {FLOW, PACKET}),
        ("engine/packet/kernels/nic.py", "in_flight += 1", "in_flight += 2", {PACKET}),
        # constants that they read, in their file or another
        ("engine/flow/kernels/flows.py", "_SAME = 1e-12", "_SAME = 1e-11", {FLOW}),
        ("records/program.py", "NEVER = int(np.iinfo(np.int64).max)", "NEVER = 2**62", {FLOW, PACKET}),
        ("records/packet.py", "HEADER_BYTES = 64", "HEADER_BYTES = 65", {FLOW, PACKET}),
        ("records/transport.py", "SELECTIVE = 1", "SELECTIVE = 2", {PACKET}),
        # layouts of records
        ("records/program.py", '("remaining", np.float64)', '("remaining", np.float32)', {FLOW, PACKET}),
        # how kernels are compiled
        ("jit/compile.py", 'error_model="numpy"', 'error_model="python"', {FLOW, PACKET, PATHS}),
        ("jit/tables.py", "first = 2 *", "first = 1 *", {FLOW, PACKET, PATHS}),
        ("engine/packet/kernels/nic.py", "@rare\ndef withdraw", "@inlined\ndef withdraw", {PACKET}),
    ],
)
def test_what_a_kernel_reads_changes_its_programs(
    tmp_path: Path, name: str, before: str, after: str, programs: set[str]
) -> None:
    assert changed(tmp_path, name, before, after) == programs


def test_a_kernel_of_another_place_is_known_by_itself_and_what_it_imports(tmp_path: Path) -> None:
    one, other, comment = (tmp_path / f"{name}.py" for name in ("one", "other", "comment"))
    text = "from fabricsim.topology.shortest_paths import mix\nFACTOR = 2\ndef f(x):\n    return mix(FACTOR * x)\n"
    one.write_text(text, encoding="utf-8")
    other.write_text(text.replace("FACTOR = 2", "FACTOR = 3"), encoding="utf-8")
    comment.write_text(f"# comment\n{text}", encoding="utf-8")

    assert PACKAGE / "topology" / "shortest_paths.py" in sources(one)
    assert digest(one) == digest(comment) != digest(other)


def test_a_string_that_is_no_docstring_counts(tmp_path: Path) -> None:
    texts = ("def f(x):\n    return x['{}']\n", "F = lambda x: '{}'\n", "F = ['{}' for _ in range(3)]\n", "F = '{}'\n")
    for number, text in enumerate(texts):
        one, other = tmp_path / f"one{number}.py", tmp_path / f"other{number}.py"
        one.write_text(text.format("one"), encoding="utf-8")
        other.write_text(text.format("two"), encoding="utf-8")
        assert digest(one) != digest(other), text


def test_all_imports_are_absolute() -> None:
    """The digest follows no others."""
    relative = re.compile(r"^\s*from \.", re.MULTILINE)
    assert [path for path in sources(PACKAGE / PACKET) if relative.search(path.read_text("utf-8"))] == []
