from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.results.traffic import DEMAND
from fabricsim.workload import matrix

ROOT = Path(__file__).resolve().parents[2]
CSV = "id,src,dst,bytes,start_ns\n7,0,3,1000,5\n9,2,1,1,0\n"
HTSIM = "Nodes 4\nConnections 2\n0->3 id 7 start 5000 size 1000\n2->1 id 9 start 0 size 1\n"
FLOWS = [(7, 0, 3, 1000, 5000), (9, 2, 1, 1, 0)]


@pytest.fixture(scope="module")
def peers() -> Path:
    folder = Path(os.environ.get("FABRICSIM_PEERS") or ROOT.parent / "shared" / "peers")
    if not (folder / "inputs").is_dir():
        pytest.skip("inputs of other simulators are not here: set FABRICSIM_PEERS")
    return folder / "inputs"


def read(folder: Path, content: str | bytes) -> matrix.Matrix:
    file = folder / "flows"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return matrix.read(file)


def refusal(folder: Path, content: str | bytes) -> str:
    with pytest.raises(TraceError) as caught:
        read(folder, content)
    return str(caught.value).removeprefix(str(folder / "flows"))


# ---- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [CSV, HTSIM], ids=["csv", "htsim"])
def test_both_forms_give_the_same_flows(tmp_path: Path, content: str) -> None:
    found = read(tmp_path, content)

    assert found.flows.dtype == DEMAND
    assert found.flows.tolist() == FLOWS
    assert (found.endpoints, found.name) == (4, "flows")


@pytest.mark.parametrize("content", [CSV, HTSIM], ids=["csv", "htsim"])
def test_packed_files_comments_and_line_ends_do_not_matter(tmp_path: Path, content: str) -> None:
    dressed = "# made by hand\n\n" + content.replace("\n", "  \r\n\r\n")

    assert read(tmp_path, gzip.compress(dressed.encode())).flows.tolist() == FLOWS


def test_columns_come_in_any_order_and_some_may_be_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, "bytes, dst, src\n1000, 3, 0\n1, 1, 2\n")

    assert found.flows.tolist() == [(1, 0, 3, 1000, 0), (2, 2, 1, 1, 0)]


def test_htsim_numbers_flows_without_id_and_zero_is_zero_in_any_unit(tmp_path: Path) -> None:
    found = read(tmp_path, "Connections 1\nNodes 9\n0->3 size 12 start 0.000000\n")

    assert found.flows.tolist() == [(1, 0, 3, 12, 0)]
    assert found.endpoints == 9


@pytest.mark.parametrize("name", ["perm128", "ring16"])
def test_files_of_peers_agree_with_each_other(peers: Path, name: str) -> None:
    ours, theirs = matrix.read(peers / f"{name}.csv"), matrix.read(peers / f"{name}.cm")

    assert ours.flows.tolist() == theirs.flows.tolist()
    assert ours.endpoints == theirs.endpoints == len(ours.flows)
    assert set(ours.flows["bytes"]) == {10_240_000}
    assert set(ours.flows["source"]) == set(ours.flows["target"]) == set(range(ours.endpoints))


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,0,3,0,0", "bytes '0' is too small; write 1 or more"),
        ("1,0,3,-5,0", "bytes '-5' is negative; write 1 or more"),
        ("1,0,3,1.5,0", "bytes '1.5' is no whole number; write it without a point"),
        ("1,0,3,10MB,0", "bytes '10MB' is no number; write a whole number from 1 to 1125899906842624"),
        ("1,0,3,,0", "bytes '' is no number; write a whole number from 1 to 1125899906842624"),
        ("1,0,3,9999999999999999,0", "bytes '9999999999999999' is too large; at most 1125899906842624"),
        ("1,-1,3,5,0", "src '-1' is negative; write 0 or more"),
        ("1,0,1048576,5,0", "dst '1048576' is too large; at most 1048575"),
        ("1,0,3,5,3600000000001", "start_ns '3600000000001' is too large; at most 3600000000000"),
        ("1,3,3,5,0", "flow 1 goes from 3 to itself; nothing would cross a link"),
        ("1,0,3,5", "4 values for the 5 columns id,src,dst,bytes,start_ns; the line is cut or damaged"),
        ("0,0,3,5,0", "the id 0 is given twice; give each flow its own"),
    ],
)
def test_impossible_flow_in_csv(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(tmp_path, f"id,src,dst,bytes,start_ns\n0,1,2,3,4\n{line}\n") == f":3: {message}"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("id,src,dst,byte", "the header has an unknown column 'byte'; did you mean 'bytes'?"),
        ("src,dst,bytes,priority", "the header has an unknown column 'priority'; there are id, src, dst, bytes"),
        ("src,dst,bytes,src", "the header has the column src twice"),
        ("src,dst", "the header lacks the column bytes"),
    ],
)
def test_other_headers(tmp_path: Path, header: str, message: str) -> None:
    assert refusal(tmp_path, f"{header}\n1,2,3,4\n").startswith(f":1: {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0->4 id 1 start 0 size 5", "endpoint 4 is not there: Nodes 4 are numbered 0 to 3; raise Nodes"),
        ("-1->2 id 1 start 0 size 5", "endpoint '-1' is negative; write 0 or more"),
        ("2->2 id 1 start 0 size 5", "flow 1 goes from 2 to itself"),
        ("0->2 id 0 start 0 size 5", "id '0' is too small; write 1 or more"),
        ("0->2 id 9 start 0 size 5", "the id 9 is given twice"),
        ("0->2 id 1 start 0 size 0", "size '0' is too small; write 1 or more"),
        ("0->2 id 1 start 2.500000 size 5", "start (ps) '2.500000' is no whole number; write it without a point"),
        ("0->2 id 1 start 0 size", "size is given twice or without a value"),
        ("0->2 id 1 id 2 start 0 size 5", "id is given twice or without a value"),
        ("0->2 id 1 size 5", "the connection has no start; the line is cut or damaged"),
        ("0->2 id 1 start 0", "the connection has no size; the line is cut or damaged"),
        ("0->2 id 1 trigger 3 size 5", "'trigger 3' starts flows when others end; give each flow a start, or"),
        ("0->2 id 1 start 0 size 5 send_done_trigger 7", "'send_done_trigger 7' starts flows when others end"),
        ("0->2 id 1 start 0 size 5 prio 3", "'prio 3' is a priority, and all flows here have the same; take it out"),
        ("trigger id 1 oneshot", "'trigger id 1' starts flows when others end"),
        ("trigger " + "9" * 5000, "'trigger 9999"),
        ("Triggers 3", "'Triggers 3' starts flows when others end"),
        ("Failures 1", "'Failures 1' is a failure of the fabric; take it out, and name the cable in fabric.failures"),
        ("failure switch_type TOR switch_id 0 link_id 1", "'failure switch_type TOR' is a failure of the fabric"),
        ("Nodes 5", "not one number after Nodes, or a second line of it"),
        ("Flows 5", "'Flows' is nothing that a connection matrix has"),
    ],
)
def test_impossible_line_in_a_connection_matrix(tmp_path: Path, line: str, message: str) -> None:
    content = f"Nodes 4\nConnections 2\n2->1 id 9 start 0 size 1\n{line}\n"

    assert refusal(tmp_path, content).startswith(f":4: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Nodes 4\nConnections 3\n0->1 id 1 start 0 size 1\n", ": Connections 3, but 1 are there; the file is cut"),
        ("Nodes 4\n0->1 id 1 start 0 size 1\n", ": the line Connections is missing"),
        ("0->1 id 1 start 0 size 1\n", ":1: a connection before the line Nodes"),
        ("Nodes 0\nConnections 1\n", ":1: Nodes '0' is too small"),
        ("Nodes many\n", ":1: Nodes 'many' is no number"),
        ("src,dst,bytes\n", ": holds a header but no flows"),
        ("# nothing\n\n", ": holds no flows"),
        ("", ": is empty"),
        (bytes(range(256)), ":1: holds binary data"),
    ],
)
def test_file_that_is_no_matrix(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert refusal(tmp_path, content).startswith(message)


def test_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a directory"):
        matrix.read(tmp_path)


def test_too_many_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MOST_FLOWS", 1)

    assert refusal(tmp_path, CSV) == ":3: more than 1 flows; split the matrix"


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(content=st.one_of(st.binary(max_size=200), st.text("0123456789,->.\n stariedNoConecz#", max_size=120)))
def test_whatever_the_file_holds_the_answer_is_flows_or_one_kind_of_error(tmp_path: Path, content: str | bytes) -> None:
    for start in (b"", b"src,dst,bytes\n", b"Nodes 4\nConnections 1\n"):
        try:
            found = read(tmp_path, start + (content if isinstance(content, bytes) else content.encode()))
        except TraceError:
            continue
        assert len(found.flows) > 0
        assert (found.flows["source"] != found.flows["target"]).all()
        assert (found.flows["bytes"] > 0).all()
