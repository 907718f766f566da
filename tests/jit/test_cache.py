"""Where compiled kernels are kept, who shares them, and what becomes of a cache that cannot be used."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from numba import int64
from numba.core.registry import cpu_target

from fabricsim.engine.flow.kernels.main_loop import advance
from fabricsim.jit import engines
from fabricsim.jit.cache import ProgramCache, cache_directory
from fabricsim.jit.unused import mark_used, remove_unused
from fabricsim.topology.shortest_paths import flow_hash

PACKAGE = Path(__file__).resolve().parents[2] / "fabricsim"
HASH = """
from fabricsim.topology.shortest_paths import flow_hash
print(flow_hash(1, 2, 3, 4), sum(flow_hash._program.stats.cache_hits.values()))
"""
pytestmark = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")


def environment(folder: Path) -> Path:
    """A copy of the package, as another environment has it."""
    shutil.copytree(PACKAGE, folder / "fabricsim", copy_function=shutil.copyfile)  # with times of its own
    return folder


def start(folder: Path, cache: Path | str, **more: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache), **more}
    command = [sys.executable, "-c", HASH]
    return subprocess.Popen(  # noqa: S603  our own code
        command, env=variables, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def hashed(folder: Path, cache: Path | str, notes: int = 0, **more: str) -> tuple[int, int]:
    """What a kernel gives in an environment, and how many of its programs came from the cache."""
    run = start(folder, cache, **more)
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert err.count("set NUMBA_CACHE_DIR to a folder") == notes, err
    assert err.count("Warning") == notes, err
    value, hits = out.split()
    return int(value), int(hits)


def changed(folder: Path) -> Path:
    """An environment with another version of the package."""
    source = environment(folder) / "fabricsim" / "topology" / "shortest_paths.py"
    source.write_text(source.read_text("utf-8").replace("0x45D9F3B", "0x45D9F3D"), encoding="utf-8")
    return folder


def program_of_another_version(folder: Path) -> bytes:
    hashed(changed(folder / "another"), folder / "its-cache")
    (program,) = programs(folder / "its-cache")
    return program.read_bytes()


def programs(cache: Path) -> list[Path]:
    return sorted((cache / "fabricsim").rglob("*.nbc"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return environment(tmp_path / "here")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """What the kernel gives, and a cache that holds its program."""
    folder = tmp_path_factory.mktemp("compiled")
    return hashed(environment(folder / "here"), folder)[0], folder / "fabricsim"


@pytest.fixture
def value(compiled: tuple[int, Path], tmp_path: Path) -> int:
    """What the kernel gives; its program lies in the cache of the test."""
    shutil.copytree(compiled[1], tmp_path / "fabricsim")
    return compiled[0]


@pytest.mark.slow
def test_environments_with_the_same_sources_share_programs_and_others_do_not(here: Path, tmp_path: Path) -> None:
    other = environment(tmp_path / "other")

    value, hits = hashed(here, tmp_path)
    assert hits == 0
    assert hashed(other, tmp_path) == (value, 1)

    another, hits = hashed(changed(tmp_path / "changed"), tmp_path)
    assert (another != value, hits) == (True, 0)
    assert hashed(here, tmp_path) == (value, 1)


@pytest.mark.slow
def test_two_versions_at_once_keep_their_own_programs(here: Path, tmp_path: Path) -> None:
    environments = [here, changed(tmp_path / "changed")]
    alone = [hashed(each, tmp_path / "alone")[0] for each in environments]

    outs = [run.communicate() for run in [start(each, tmp_path) for each in environments]]

    assert [int(out.split()[0]) for out, _ in outs] == alone
    assert alone[0] != alone[1]
    assert [err for _, err in outs] == ["", ""]
    assert [hashed(each, tmp_path) for each in environments] == [(value, 1) for value in alone]


@pytest.mark.slow
def test_a_comment_recompiles_nothing(here: Path, value: int, tmp_path: Path) -> None:
    source = here / "fabricsim" / "topology" / "shortest_paths.py"
    source.write_text(f"# a comment\n\n{source.read_text('utf-8')}", encoding="utf-8")
    assert hashed(here, tmp_path) == (value, 1)


def damaged(content: bytes, damage: str, folder: Path) -> bytes:
    if damage == "elsewhere":
        return program_of_another_version(folder)
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    return {
        "nothing": content,
        "cut": content[: len(content) // 2],
        "empty": b"",
        "flipped": bytes(flipped),
        "zeros": bytes(len(content)),
        "prefix": content[:7],
    }[damage]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["nothing", "cut", "empty", "flipped", "zeros", "prefix", "elsewhere"])
@pytest.mark.usefixtures("value")
def test_a_damaged_program_is_not_read(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = programs(tmp_path)
    monkeypatch.setattr("fabricsim.jit.cache.programs_of", lambda _source: program.parent)
    program.write_bytes(damaged(program.read_bytes(), damage, tmp_path))

    found = ProgramCache(flow_hash.__wrapped__).load_overload((int64,) * 4, cpu_target.target_context)
    assert (found is None) == (damage != "nothing")


@pytest.mark.slow
def test_a_damaged_program_is_compiled_anew_and_mended(here: Path, value: int, tmp_path: Path) -> None:
    (program,) = programs(tmp_path)
    program.write_bytes(damaged(program.read_bytes(), "cut", tmp_path))
    assert hashed(here, tmp_path) == (value, 0)
    assert hashed(here, tmp_path) == (value, 1)

    program.unlink()
    program.mkdir()
    assert hashed(here, tmp_path, notes=1) == (value, 0)


@pytest.mark.slow
def test_a_program_that_others_could_have_written_is_not_read(here: Path, value: int, tmp_path: Path) -> None:
    (program,) = programs(tmp_path)
    program.chmod(0o666)
    assert hashed(here, tmp_path) == (value, 0)  # and is written anew
    assert program.stat().st_mode & 0o777 == 0o644
    assert hashed(here, tmp_path) == (value, 1)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="files of another user are made by root alone")
def test_a_program_of_another_user_is_not_read(here: Path, value: int, tmp_path: Path) -> None:
    (program,) = programs(tmp_path)
    os.chown(program, 12345, -1)
    assert hashed(here, tmp_path) == (value, 0)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/dev/null", "/proc/nowhere"])
def test_where_nothing_can_be_kept_kernels_are_compiled_in_memory_with_one_note(here: Path, place: str) -> None:
    assert hashed(here, place, notes=1)[1] == 0


@pytest.mark.slow
def test_a_full_disk_is_noted_and_leaves_nothing_half_written(here: Path, tmp_path: Path) -> None:
    command = [shutil.which("sh") or "sh", "-c", f'ulimit -f 0; exec "{sys.executable}" -c "$1"', "sh", HASH]
    variables = {
        **os.environ,
        "PYTHONPATH": str(here),
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    run = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)  # noqa: S603  our own code

    assert run.stderr.count("Warning") == 1
    assert [path for path in (tmp_path / "fabricsim").rglob("*") if path.is_file()] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few kB, as root can make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k,mode=0777", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:  # noqa: S603  our own command
        pytest.skip("no disk can be mounted")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)  # noqa: S603, S607  as above


@pytest.mark.slow
def test_a_disk_without_room_is_noted_once_and_left_as_it_was(here: Path, small_disk: Path) -> None:
    value, hits = hashed(here, small_disk, notes=1, PYTHONDONTWRITEBYTECODE="1")
    assert hits == 0
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []
    assert hashed(here, small_disk, notes=1, PYTHONDONTWRITEBYTECODE="1") == (value, 0)


@pytest.fixture
def of_nobody() -> Iterator[Path]:
    """A folder that another user can read, and python with all packages, if that user can run it."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        trial = [sys.executable, "-c", "import numba"]
        try:
            subprocess.run(trial, check=True, capture_output=True, user=_NOBODY, group=_NOBODY, cwd=name)  # noqa: S603  our own command
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("Python or its packages are in a folder of root's")
        shutil.copytree(PACKAGE.parent / "workloads", Path(name) / "here" / "workloads")
        yield environment(Path(name) / "here")


_NOBODY = 65534


def by_nobody(folder: Path, **variables: str) -> tuple[str, list[str]]:
    """What another user sees of a run, without the time that it took; and the lines on standard error."""
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    kept = {name: value for name, value in os.environ.items() if name not in _PLACES}
    run = subprocess.run(
        [sys.executable, "-m", "fabricsim", "traffic", "ring", "--json"],
        env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        cwd=folder, capture_output=True, text=True, check=True, user=_NOBODY, group=_NOBODY, extra_groups=[],
    )  # fmt: skip
    return re.sub(r'"wall_seconds": .*', "", run.stdout), run.stderr.splitlines()


_PLACES = ("HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")


@pytest.mark.slow
def test_another_user_runs_everywhere_with_at_most_one_note(of_nobody: Path) -> None:
    """As in a container that was made as root and is run as another user."""
    homes = {name: of_nobody.parent / name for name in ("own", "read-only", "of-root")}
    for home, mode in zip(homes.values(), (0o700, 0o555, 0o700), strict=True):
        home.mkdir()
        home.chmod(mode)
    os.chown(homes["own"], _NOBODY, _NOBODY)

    told, (note,) = by_nobody(of_nobody, HOME=str(homes["own"]))
    assert "compiling kernels" in note
    assert by_nobody(of_nobody, HOME=str(homes["own"])) == (told, [])
    kept = homes["own"] / ".cache"
    os.chown(kept, 0, 0)
    for part in kept.rglob("*"):
        os.chown(part, 0, 0)
    assert by_nobody(of_nobody, XDG_CACHE_HOME=str(kept)) == (told, [])  # which root has filled
    for home in ({"HOME": str(homes["read-only"])}, {"HOME": str(homes["of-root"])}, {"HOME": "/proc/nowhere"}, {}):
        again, (note,) = by_nobody(of_nobody, **home)
        assert again == told
        assert "kernels cannot be kept" in note


def test_where_there_is_no_home_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_user: int) -> None:
        raise KeyError

    for name in ("HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)  # as of a container that runs as a user of its own
    assert cache_directory() is None


@pytest.mark.slow
def test_a_cache_that_can_only_be_read_is_read(here: Path, value: int, tmp_path: Path) -> None:
    (program,) = programs(tmp_path)
    program.parent.chmod(0o555)
    try:
        assert hashed(here, tmp_path) == (value, 1)
    finally:
        program.parent.chmod(0o755)


@pytest.mark.slow
def test_what_takes_long_to_compile_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(engines, "announce", told.append)
    monkeypatch.setattr("fabricsim.jit.cache.programs_of", lambda _source: tmp_path)
    for kernel in (advance, flow_hash):
        assert ProgramCache(kernel.__wrapped__).load_overload((), cpu_target.target_context) is None
    assert told == ["flow"]


@pytest.mark.slow
def test_processes_that_start_at_once_share_one_program(here: Path, tmp_path: Path) -> None:
    runs = [start(here, tmp_path) for _ in range(4)]
    outs = [run.communicate() for run in runs]
    assert {run.returncode for run in runs} == {0}, outs
    assert len({out.split()[0] for out, _ in outs}) == 1
    (program,) = programs(tmp_path)
    assert list(program.parent.iterdir()) == [program]  # nothing half written is left
    assert hashed(here, tmp_path)[1] == 1


@pytest.mark.slow
def test_a_source_that_is_newer_than_the_process_is_not_cached(here: Path, tmp_path: Path) -> None:
    source = here / "fabricsim" / "topology" / "shortest_paths.py"
    later = source.stat().st_mtime + 3600
    os.utime(source, (later, later))  # as if edited after the process had read it
    hashed(here, tmp_path)
    assert programs(tmp_path) == []


def test_a_home_that_may_not_be_read_holds_no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that was made as root and is run as another user."""
    from fabricsim.jit import compile as compiling  # noqa: PLC0415  imports numba

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/home/other/.cache/fabricsim")

    monkeypatch.setattr(Path, "glob", refused)

    assert not compiling.is_compiled("flow")


def old_folder(base: Path, name: str, days: int) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    (folder / "queue.post-1.nbc").write_bytes(b"program")
    date(folder, days)
    return folder


def date(folder: Path, days: int) -> None:
    then = time.time() - days * 24 * 3600
    os.utime(folder, (then, then))


@pytest.mark.slow
def test_programs_that_nobody_used_for_a_month_are_removed_when_one_is_saved(here: Path, tmp_path: Path) -> None:
    old = old_folder(tmp_path / "fabricsim", "0123456789abcdef", 31)
    recent = old_folder(tmp_path / "fabricsim", "1123456789abcdef", 29)
    strange = old_folder(tmp_path / "fabricsim", "photographs", 400)
    mixed = old_folder(tmp_path / "fabricsim", "2123456789abcdef", 400)
    (mixed / "letter.txt").write_text("not ours", encoding="utf-8")
    date(mixed, 400)
    target = old_folder(tmp_path / "target", "3123456789abcdef", 400)
    (tmp_path / "fabricsim" / target.name).symlink_to(target)
    os.utime(tmp_path / "fabricsim" / target.name, (0, 0), follow_symlinks=False)

    hashed(here, tmp_path)

    assert not old.exists()
    assert [len(list(folder.iterdir())) for folder in (recent, strange, mixed, target)] == [1, 1, 1, 1]
    assert (mixed / "letter.txt").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="files of another user are made by root alone")
def test_old_programs_of_another_user_stay(tmp_path: Path) -> None:
    old = old_folder(tmp_path, "0123456789abcdef", 400)
    os.chown(old, 12345, -1)
    remove_unused(tmp_path)
    assert old.exists()


def test_programs_that_are_used_are_dated_once_a_day(tmp_path: Path) -> None:
    folder = old_folder(tmp_path, "0123456789abcdef", 400)
    mark_used(folder)
    assert time.time() - folder.stat().st_mtime < 60
    date(folder, 0)
    before = folder.stat().st_mtime
    mark_used(folder)
    assert folder.stat().st_mtime == before
    remove_unused(tmp_path)
    assert folder.exists()


KERNELS = """
from fabricsim.jit.compile import kernel
from called import grown

@kernel
def entry(window):
    return grown(window) + 1.0
"""
CALLED = """
from fabricsim.jit.compile import kernel

GROW = {grow}

@kernel
def grown(window):
    return window * GROW
"""
RUN = """
import importlib.util, sys

def loaded(file, name):
    place = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(place)
    sys.modules[name] = module
    place.loader.exec_module(module)
    return module

sys.modules["called"] = loaded("called.py", sys.argv[2])
print(loaded("kernels.py", sys.argv[1]).entry(2.0))
"""


@pytest.mark.slow
def test_kernels_of_users_are_compiled_anew_as_another_module_or_with_other_kernels_that_they_call(
    tmp_path: Path,
) -> None:
    def entered(module: str, grow: float, called: str = "called_one") -> float:
        for name, text in (("kernels", KERNELS), ("called", CALLED.format(grow=grow))):
            (tmp_path / f"{name}.py").write_text(text)
            os.utime(tmp_path / f"{name}.py", (1, 1))  # older than the process that reads it
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        variables = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}", "NUMBA_CACHE_DIR": str(tmp_path / "c")}
        command = [sys.executable, "-c", RUN, module, called]
        run = subprocess.run(  # noqa: S603  our own code
            command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return float(run.stdout)

    assert entered("one", 1.0) == 3.0
    assert entered("another", 1.0) == 3.0
    kept = programs(tmp_path / "c")
    assert entered("another", 1.0, called="called_another") == 3.0
    assert programs(tmp_path / "c") == kept  # whatever the modules are called that have what it calls
    assert entered("another", 1.5) == 4.0
    assert len(programs(tmp_path / "c")) > 1
