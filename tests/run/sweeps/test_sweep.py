from __future__ import annotations

import csv
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fabricsim.errors import InputError, ScenarioError
from fabricsim.run.bill import COST, POWER, REMARK
from fabricsim.run.pipeline import load, simulate
from fabricsim.run.sweeps import runs, sweep, workers
from fabricsim.run.sweeps.runs import COLUMNS

SMALL = {"cluster.hosts": 2, "job.parallelism.data": 2, "job.global_batch": 8, "job.micro_batch": 4}
STUDY: dict[str, Any] = {
    "scenario": "gpt2-medium-dp",
    "settings": SMALL,
    "grid": {"transport": ["tcp-10g", "rdma-100g", "nonsense"], "job.micro_batch": [1, 2, 4, 3]},
}
KILLS = 4
INTERRUPTED_AT_THE_START = """
import os, signal, time
from multiprocessing import forkserver
from fabricsim.run.sweeps import workers

workers.make_ready()
for _ in range(8):  # a terminal sends Ctrl-C to all that run in it
    time.sleep(0.05)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)
print([found for _, found, error in workers.results(abs, [-1, -2], 2)])
"""
NO_DASK = "dask.distributed is not installed: pip install 'fabricsim[cluster]'"


def content(folder: Path) -> bytes:
    return (folder / "index.csv").read_bytes()


def run(folder: Path, study: dict[str, Any] = STUDY, **options: Any) -> sweep.SweepResult:  # noqa: ANN401  of `sweep.run`
    return sweep.run(sweep.read(study), folder, **options)


@pytest.mark.slow
def test_rows_are_what_single_runs_give_and_failures_are_kept(tmp_path: Path) -> None:
    result = run(tmp_path)

    with (tmp_path / "index.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["transport"], row["job.micro_batch"]) for row in rows] == [
        (transport, str(batch)) for transport in STUDY["grid"]["transport"] for batch in (1, 2, 4, 3)
    ]
    alone = simulate(load("gpt2-medium-dp", {**SMALL, "transport": "rdma-100g", "job.micro_batch": 2}))
    assert float(rows[5]["iteration_time_s"]) == alone.iteration / 1e12
    failed = [row for row in rows if row["status"] == "failed"]
    assert len(failed) == result.progress.failed == 6
    assert all("nonsense" in row["error"] or "micro_batch" in row["error"] for row in failed)
    assert len(list((tmp_path / sweep.RUNS).glob("*.json"))) == 12


@pytest.mark.slow
def test_the_index_does_not_depend_on_workers_or_on_who_had_begun(tmp_path: Path) -> None:
    run(tmp_path / "one")
    run(tmp_path / "two", workers=2)
    for file in sorted((tmp_path / "two" / sweep.RUNS).iterdir())[::2]:
        file.unlink()
    again = run(tmp_path / "two", resume=True)

    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert again.progress.known == 6


@pytest.mark.slow
def test_resuming_simulates_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    before = content(tmp_path)
    monkeypatch.setattr(runs.pipeline, "simulate", lambda *_: pytest.fail("simulated again"))

    result = run(tmp_path, resume=True)

    assert result.progress.known == result.progress.done == 12
    assert content(tmp_path) == before


def test_a_folder_in_use_is_refused_without_resume(tmp_path: Path) -> None:
    (tmp_path / sweep.RUNS).mkdir()
    (tmp_path / sweep.RUNS / "x.json").write_text("{}")

    with pytest.raises(InputError, match="--resume"):
        run(tmp_path)


@pytest.mark.slow
def test_a_sweep_all_of_whose_runs_failed_is_in_nobodys_way(tmp_path: Path) -> None:
    one = {**STUDY, "grid": {"job.micro_batch": [2, 4]}}
    slip = run(tmp_path, {**one, "settings": {**SMALL, "job.bath": 3}})
    assert {row["status"] for row in slip.rows} == {"failed"}

    assert {row["status"] for row in run(tmp_path, one).rows} == {"done"}
    with pytest.raises(InputError, match="--resume"):
        run(tmp_path, one)


@pytest.mark.slow
def test_damaged_files_of_runs_are_made_anew(tmp_path: Path) -> None:
    run(tmp_path)
    before = content(tmp_path)
    files = sorted((tmp_path / sweep.RUNS).iterdir())
    files[0].write_text("{")
    files[1].write_text("[]")
    files[2].write_bytes(b"\xff")

    run(tmp_path, resume=True)

    assert content(tmp_path) == before


@pytest.mark.slow
def test_results_that_are_not_as_they_were_written_are_made_anew(tmp_path: Path) -> None:
    study = {**STUDY, "keep_results": True, "grid": {"job.micro_batch": [1, 2, 4]}}
    run(tmp_path, study)
    before = content(tmp_path)
    files = {file: file.read_bytes() for file in sorted((tmp_path / sweep.RUNS).glob("*.h5"))}
    trash, other, gone = files
    trash.write_bytes(b"trash")
    other.write_bytes(files[gone])
    gone.unlink()

    assert run(tmp_path, study, resume=True).progress.known == 0
    assert {file: file.read_bytes() for file in files} == files
    assert content(tmp_path) == before
    assert run(tmp_path, study, resume=True).progress.known == 3


@pytest.mark.slow
def test_a_result_that_could_not_be_kept_is_made_once_more(tmp_path: Path) -> None:
    study = {**STUDY, "keep_results": True, "grid": {"job.micro_batch": [1]}}
    (row,) = run(tmp_path / "good", study).rows
    blocked = tmp_path / "bad" / sweep.RUNS / f"{row['run']}.h5"
    blocked.mkdir(parents=True)

    assert [each["status"] for each in run(tmp_path / "bad", study).rows] == ["failed"]
    blocked.rmdir()
    assert [each["status"] for each in run(tmp_path / "bad", study, resume=True).rows] == ["done"]


@pytest.mark.slow
def test_a_run_whose_file_cannot_be_written_has_its_name_all_the_same(tmp_path: Path) -> None:
    study = {**STUDY, "grid": {"job.micro_batch": [1, 3]}}
    names = [row["run"] for row in run(tmp_path / "good", study).rows]
    for name in names:
        (tmp_path / "bad" / sweep.RUNS / f"{name}.json").mkdir(parents=True)
    rows = run(tmp_path / "bad", study, resume=True).rows

    assert [row["run"] for row in rows] == names
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert "cannot be written: Is a directory" in rows[0]["error"]
    assert "micro_batch" in rows[1]["error"]


@pytest.mark.slow
def test_a_parent_that_is_killed_at_random_loses_nothing(tmp_path: Path) -> None:
    """Four times; then the index is that of an undisturbed run, byte for byte."""
    study = tmp_path / "study.toml"
    grid = 'fabric.link_rate = { from = "20Gbps", to = "300Gbps", count = 40 }\ntransport = ["tcp-10g", "rdma-100g"]\n'
    fixed = "\n".join(f'"{key}" = {value}' for key, value in SMALL.items())
    study.write_text(f'scenario = "gpt2-medium-dp"\n[settings]\n{fixed}\n[grid]\n{grid}')
    sweep.run(sweep.read(study), tmp_path / "undisturbed")
    command = [sys.executable, "-m", "fabricsim", "sweep", str(study), "-o", str(tmp_path / "out"), "--resume"]
    draw = random.Random(4)  # noqa: S311  no secret

    for _ in range(KILLS):
        parent = subprocess.Popen([*command, "--workers", "2"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # noqa: S603  our own words
        time.sleep(draw.uniform(0.5, 2))
        parent.kill()
        parent.wait()
    subprocess.run([*command, "--workers", "2"], check=True, capture_output=True)  # noqa: S603  as above

    assert content(tmp_path / "out") == content(tmp_path / "undisturbed")
    assert not list((tmp_path / "out" / sweep.RUNS).glob("*.part"))[
        4:
    ]  # of those killed in the midst of a file, at most


@pytest.mark.slow
def test_ctrl_c_ends_workers_too_and_says_one_line(tmp_path: Path) -> None:
    study, out = tmp_path / "study.toml", tmp_path / "out"
    grid = 'fabric.link_rate = { from = "20Gbps", to = "300Gbps", count = 5000 }'
    study.write_text(f'scenario = "gpt2-medium-dp"\n[grid]\n{grid}\n')
    command = [sys.executable, "-m", "fabricsim", "sweep", str(study), "-o", str(out), "--workers", "2"]
    sweeping = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)  # noqa: S603  our own words
    while not list(out.glob("runs/*.json")):
        assert sweeping.poll() is None
        time.sleep(0.1)

    os.killpg(sweeping.pid, signal.SIGINT)
    _, err = sweeping.communicate(timeout=60)  # until the last process that could write has ended

    assert (sweeping.returncode, err) == (130, "fabricsim: interrupted\n")
    assert len(list(out.glob("runs/*.json"))) < 5000


def end_once(task: str) -> str:
    """Kill the process that runs the third task, the first time; the fourth always."""
    folder, number = task.split(" ")
    mark = Path(folder) / "killed"
    if (number == "2" and not mark.exists()) or number == "3":
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.slow
def test_runs_of_a_worker_that_is_killed_are_made_anew(tmp_path: Path) -> None:
    tasks = [f"{tmp_path} {number}" for number in range(12)]

    found = {task.split(" ")[1]: (value, error) for task, value, error in workers.results(end_once, tasks, 2)}

    assert {number: value for number, (value, _) in found.items() if number != "3"} == {
        str(number): str(number) for number in range(12) if number != 3
    }
    assert "processes ended" in str(found["3"][1])


@pytest.mark.slow
def test_a_worker_of_dask_that_is_killed_costs_nothing_but_time(tmp_path: Path) -> None:
    """The nanny starts another one, and the scheduler hands the runs of the first to whoever is there."""
    pytest.importorskip("distributed", reason=NO_DASK)
    study = {**STUDY, "grid": {**STUDY["grid"], "fabric.link_rate": ["40Gbps", "100Gbps"]}}
    run(tmp_path / "one", study)
    killed: list[int] = []

    def kill(state: sweep.Progress) -> None:
        if state.done in {3, 9}:
            worker = multiprocessing.active_children()[0]
            killed.append(worker.pid or 0)
            worker.kill()

    result = run(tmp_path / "dask", study, scheduler="dask", workers=2, progress=kill)

    assert len(set(killed)) == 2
    assert result.progress.done == 24
    assert content(tmp_path / "dask") == content(tmp_path / "one")


@pytest.mark.slow
def test_a_task_that_ends_every_worker_of_dask_fails_alone(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason=NO_DASK)
    tasks = [f"{tmp_path} {number}" for number in range(12)]

    found = {task.split(" ")[1]: (value, error) for task, value, error in workers.results(end_once, tasks, 2, "dask")}

    assert {number for number, (_, error) in found.items() if error} == {"3"}
    assert "KilledWorker" in repr(found["3"][1])


@pytest.mark.slow
def test_shards_come_together(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    for part in ("2/3", "1/3", "3/3"):
        run(tmp_path / "parts", shard=sweep.Shard.parse(part), resume=True)
    last = run(tmp_path / "parts", resume=True)

    assert last.progress.known == 12
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert (tmp_path / "parts" / "index-2-of-3.csv").exists()


@pytest.mark.slow
def test_a_cluster_of_dask_gives_the_same(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason=NO_DASK)
    study, out = tmp_path / "study.toml", tmp_path / "dask"
    study.write_text('scenario = "gpt2-medium-dp"\n[grid]\ntransport = ["tcp-10g", "rdma-100g"]\n')
    sweep.run(sweep.read(study), tmp_path / "one")
    command = [sys.executable, "-m", "fabricsim", "sweep", str(study), "-o", str(out), "--scheduler", "dask"]

    subprocess.run([*command, "--workers", "2"], check=True, capture_output=True)  # noqa: S603  our own words

    assert content(out) == content(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "column"),
    [
        (
            {"scenario": "hkbu", "bench": {"test": "all_reduce"}, "grid": {"bench.size": ["1MiB", "4MiB"]}},
            "busbw_bytes_per_s",
        ),
        (
            {
                "scenario": "ideal-16",
                "traffic": {"pattern": "incast", "size": "100kB"},
                "grid": {"traffic.flows": [2, 4]},
            },
            "makespan_s",
        ),
        (
            {"scenario": "dgx1-v100", "replay": {"trace": "dlrm-v100"}, "grid": {"replay.gpu_speed": [1.0, 2.0]}},
            "captured_iteration_time_s",
        ),
    ],
)
def test_traffic_benchmarks_and_replays_are_swept(tmp_path: Path, study: dict[str, Any], column: str) -> None:
    rows = run(tmp_path, study).rows

    assert [row["status"] for row in rows] == ["done", "done"]
    times = [row.get("time_s") or row.get("makespan_s") or row["iteration_time_s"] for row in rows]
    assert times[0] != times[1]
    assert all(row[column] > 0 for row in rows)
    assert set(rows[0]) == {"run", "status", "error", *study["grid"], *COLUMNS[sweep.read(study).kind]}


@pytest.mark.slow
def test_points_that_are_the_same_run_share_a_file(tmp_path: Path) -> None:
    again = tmp_path / "again.toml"
    again.write_text('extends = "gpt2-medium-dp"\nname = "gpt2-medium-dp"\n')
    study = {
        "scenario": "gpt2-medium-dp",
        "grid": {"job.micro_batch": [1, 2], "scenario": ["gpt2-medium-dp", str(again)]},
    }

    rows = run(tmp_path, study).rows

    assert len(rows) == 4
    assert len({row["run"] for row in rows}) == 2


def test_mistakes_of_the_file_are_told_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('scenario = "gpt2-medium-dp"\ngird = { a = [1] }\n')

    with pytest.raises(ScenarioError, match=r"s\.toml:2: gird: unknown key \(did you mean 'grid'"):
        sweep.read(file)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(InputError, match=r"traffic\.flow: unknown option; did you mean 'flows'"):
        sweep.read({"scenario": "ideal-16", "traffic": {"pattern": "incast"}, "grid": {"traffic.flow": [1]}})


@pytest.mark.parametrize("text", ["3", "0/4", "5/4", "a/b", "1/"])
def test_parts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="3/8"):
        sweep.Shard.parse(text)


@pytest.mark.slow
def test_ctrl_c_does_not_interrupt_what_workers_are_copied_from_while_it_gets_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT_THE_START]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  our own words

    assert done.stderr == ""
    assert sorted(done.stdout.strip()) == sorted("[1, 2]")


@pytest.mark.slow
def test_starts_of_jobs_are_no_part_of_their_iterations(tmp_path: Path) -> None:
    """Two jobs that do not meet take as long as each alone, however late the second one begins."""
    settings = {**SMALL, "cluster.hosts": 4, "jobs.red.ranks": "0-1", "jobs.blue.ranks": "2-3"}
    run(tmp_path, {"scenario": "gpt2-medium-dp", "settings": settings, "grid": {"jobs.blue.start": ["0s", "3s"]}})

    with (tmp_path / "index.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    alone = simulate(load("gpt2-medium-dp", SMALL)).iteration / 1e12
    parts = ("compute_s", "exposed_communication_s", "host_s", "bubble_s")
    for row in rows:
        assert float(row["iteration_time_s"]) == pytest.approx(alone)
        assert sum(float(row[part]) for part in parts) == pytest.approx(alone)
        assert row["ranks"] == "4"


def test_a_run_without_a_price_counts_and_says_why(tmp_path: Path) -> None:
    """The list has switches of 200 Gb/s, and none of 123."""
    grid = {"fabric.link_rate": ["123Gbps", "200Gbps"]}
    study = {"scenario": "gpt2-medium-dp", "settings": SMALL, "grid": grid, "prices": "list-400g"}
    unpriced, priced = run(tmp_path, study).rows

    assert (unpriced["status"], priced["status"]) == ("done", "done")
    assert unpriced["iteration_time_s"] > 0
    assert unpriced["network_cost_per_gpu_usd"] is None
    assert "has no price of switch of 2 x 123 Gb/s" in unpriced["price_remark"]
    assert priced["network_cost_per_gpu_usd"] > 0
    assert priced["price_remark"] is None


WRITTEN = """scenario = "gpt2-medium-dp"
[settings]
cluster.hosts = 2
job.parallelism.data = 2
job.global_batch = 9
[grid]
"fabric.link_rate" = ["100Gbs", "200Gbps"]
[[points]]
job.micro_batch = 3
[[points]]
job.micro_bach = 4
"""


def test_mistakes_of_runs_name_the_line_of_the_sweep(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(WRITTEN, encoding="utf-8")
    swept = sweep.read(file, {"cluster.hosts": "two"})
    rows = sweep.run(swept, tmp_path).rows

    assert f"{file}:7: fabric.link_rate: unit 'Gbs'" in rows[0]["error"]
    assert "--set: cluster.hosts: " in rows[0]["error"]
    assert f"{file}:11: job.micro_bach: unknown key" in rows[2]["error"]
    (row, *_) = sweep.run(sweep.read(file), tmp_path).rows[1:]
    assert f"{file}:5: job.global_batch: 9 is no multiple" in row["error"]


def test_what_is_laid_over_a_setting_of_the_file_is_said_to_be_so(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('scenario = "ideal-16"\n[settings]\nengine = "flow"\n[grid]\nseed = [1]\n', encoding="utf-8")

    (row,) = sweep.run(sweep.read(file, {"engine": "bogus"}), tmp_path).rows

    assert "--set: engine: 'bogus'" in row["error"]


def test_a_size_that_is_none_is_said_at_its_point(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    points = "".join(f'[[points]]\n"bench.size" = "{size}"\n' for size in ("1MiB", "2MiB", "7 foo"))
    file.write_text(f'scenario = "ideal-16"\n[bench]\ntest = "all_reduce"\nsize = "1MiB"\n{points}', encoding="utf-8")

    with pytest.raises(InputError, match=r"study\.toml:10: bench\.size: unit 'foo'"):
        sweep.read(file)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a = { from = 1, to = 2, stepp = 1 }", "study.toml:3: grid.a.stepp: unknown key"),
        ('"a.b" = [1, 1]', "study.toml:3: grid.a.b[1]: 1 is there already"),
        ("a = [1]\n[[points]]\na = 1", "study.toml:3: a: is varied twice"),
        ('"fabric.failures[0].frm" = ["1ms"]', "study.toml:3: fabric.failures[0].frm: is no key"),
        ("", "study.toml: nothing is varied"),
    ],
)
def test_mistakes_of_a_sweep_name_its_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "study.toml").write_text(f'scenario = "ideal-16"\n[grid]\n{line}\n', encoding="utf-8")

    with pytest.raises(InputError) as raised:
        sweep.read(tmp_path / "study.toml")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("fixed", "grid", "said"),
    [
        ("-1MB", "seed = [1, 2]", "study.toml:2: bench.size: '-1MB' is negative; "),
        ("1MB", 'bench.size = ["64MiB", "hadoop"]', "study.toml:3: bench.size: 'hadoop' "),
        ("1MB", 'bench.size = ["64MiB", "0B"]', "study.toml:3: bench.size: '0B' is less than a byte; write it like"),
    ],
)
def test_sizes_of_buffers_are_checked_before_any_run(tmp_path: Path, fixed: str, grid: str, said: str) -> None:
    text = f"bench = {{ test = 'all_reduce', size = '{fixed}' }}\ngrid.{grid}\n"
    (tmp_path / "study.toml").write_text(f"scenario = 'dgx-1'\n{text}", encoding="utf-8")

    with pytest.raises(InputError) as raised:
        sweep.read(tmp_path / "study.toml")
    assert said in str(raised.value)
    assert "distribution" not in str(raised.value)


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (
            '{ x = "sed", y = "mfu" }',
            "pictures[0].x: the index has no column 'sed'; did you mean 'seed'?",
        ),
        ('{ x = "seed", y = "makespan_s" }', "study.toml:3: pictures[0].y: the index has no column 'makespan_s'; "),
        ('{ x = "network_cost_per_gpu_usd", y = "mfu" }', "pictures[0].x: the index has no column 'network_cost"),
    ],
)
def test_pictures_of_no_column_are_refused_before_any_run(tmp_path: Path, picture: str, said: str) -> None:
    text = f"scenario = 'gpt2-medium-dp'\ngrid.seed = [1, 2]\npictures = [{picture}]\n"
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as raised:
        sweep.read(tmp_path / "study.toml")
    assert said in str(raised.value)


def test_columns_of_pictures_are_those_of_the_index(tmp_path: Path) -> None:
    study = {"scenario": "gpt2-medium-dp", "settings": SMALL, "grid": {"seed": [1]}, "prices": "list-400g"}
    (row,) = run(tmp_path, study).rows

    assert set(row) - {COST, POWER, REMARK} == {"run", "status", "seed", "error", *COLUMNS["job"]}


def test_the_name_of_a_scenario_is_no_sweep() -> None:
    with pytest.raises(InputError, match=r"gpt2-medium-dp: there is no such file; name the TOML file of a sweep"):
        sweep.read("gpt2-medium-dp")


def test_a_price_list_that_is_not_there_is_said_with_its_line(tmp_path: Path) -> None:
    text = 'scenario = "gpt2-medium-dp"\nprices = "list-400"\n[grid]\nseed = [1]\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"study\.toml:2: prices list-400: .* did you mean 'list-400g'"):
        sweep.read(tmp_path / "study.toml")
