from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import FabricsimWarning, TraceError
from fabricsim.topology import cable_file
from fabricsim.topology.cable_file import ListedCable

HEADER = "a,b,gbps,delay_ns\n"
NUMBERS = HEADER + "0,2,100,1000\n1,2,100,1000\n"


def read(folder: Path, content: str | bytes, hosts: int = 2) -> list[ListedCable]:
    file = folder / "cables"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return cable_file.read(file, hosts)


def refusal(folder: Path, content: str | bytes, hosts: int = 2) -> str:
    with pytest.raises(TraceError) as caught:
        read(folder, content, hosts)
    return str(caught.value).removeprefix(str(folder / "cables"))


# ---- what is read -------------------------------------------------------------------------------


def test_numbers_are_hosts_first_and_switches_after_them(tmp_path: Path) -> None:
    # 100 Gbit/s are 12.5e9 bytes/s, 1000 ns are 1e6 ps
    assert read(tmp_path, NUMBERS) == [
        ListedCable("host0", "switch2", 12.5e9, 1_000_000),
        ListedCable("host1", "switch2", 12.5e9, 1_000_000),
    ]


def test_names_are_kept(tmp_path: Path) -> None:
    text = "delay_ns,b,a,gbps\n0.5,leaf_1,host0,2.5\n0,host1,leaf_1,400\n"
    assert read(tmp_path, text) == [
        ListedCable("host0", "leaf_1", 0.3125e9, 500),
        ListedCable("leaf_1", "host1", 50e9, 0),
    ]


def test_packed_files_comments_and_line_ends_do_not_matter(tmp_path: Path) -> None:
    dressed = "# made by hand\n\n" + NUMBERS.replace("\n", "  \r\n\r\n").replace(",", " , ")
    assert read(tmp_path, gzip.compress(dressed.encode())) == read(tmp_path, NUMBERS)


def test_two_hosts_may_be_joined_back_to_back(tmp_path: Path) -> None:
    assert read(tmp_path, HEADER + "0,1,100,5\n") == [ListedCable("host0", "host1", 12.5e9, 5000)]


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# nothing\n", ": holds nothing; write a header such as a,b,gbps,delay_ns and lines below it"),
        (HEADER, ": holds nothing; write a header such as a,b,gbps,delay_ns and lines below it"),
        ("a,b,gbps,delay\n", ":1: the header has an unknown column 'delay'; did you mean 'delay_ns'?"),
        ("a,b,b,gbps\n", ":1: the header has the column b twice; take one out"),
        ("a,b,gbps\n", ":1: the header lacks the column delay_ns; it needs a, b, gbps, delay_ns"),
        ("0,2,100,1000\n", ":1: the header has an unknown column '0'; there are a, b, gbps, delay_ns"),
        (HEADER + "0,2,100\n", ":2: 3 values for the 4 columns a,b,gbps,delay_ns; the line is cut or damaged"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, content: str, message: str) -> None:
    assert refusal(tmp_path, content) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2,2,100,1000", "the cable leads from 2 to itself; name two nodes"),
        ("2,0,1,1", "switch2 and host0 are joined already, on line 2; take one out, and raise gbps of the other"),
        ("0,3,100,1000", "host0 has a cable already, on line 2; a host has one, so put a switch between"),
        ("leaf,3,1,1", "'leaf' is a name, the nodes before it are not; give all nodes numbers, or all of them names"),
        ("-1,3,1,1", "'-1' is no node; write a number, or a name of letters, digits, points and underscores"),
        ("1,,1,1", "'' is no node; write a number, or a name of letters, digits, points and underscores"),
        ("1,3,fast,1", "gbps: 'fast' is no number; write one without a unit"),
        ("1,3,1e,1", "gbps: '1e' is no number; write one without a unit"),
        ("1,3,1e9,1", "gbps: '1e9Gbps' is too large; a rate is at most 1PBps"),
        ('1,"3,1,1', "'1,\"3,1,1': unexpected end of data; close each quote before the next comma"),
        ("1,3,0,1", "gbps: '0Gbps' is too small; a rate is at least 1Mbps"),
        ("1,3,9000000000,1", "gbps: '9000000000Gbps' is too large; a rate is at most 1PBps"),
        ("1,3,1,-1", "delay_ns: '-1ns' is negative; a time is at least 0s"),
        ("1,3,1,1us", "delay_ns: '1us' is no number; write one without a unit"),
    ],
)
def test_an_impossible_cable_is_refused(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(tmp_path, f"{HEADER}0,2,100,1000\n{line}\n") == f":3: {message}"


def test_numbers_among_names_are_refused(tmp_path: Path) -> None:
    found = refusal(tmp_path, HEADER + "host0,leaf,1,1\n1,leaf,1,1\n")
    assert found == ":3: '1' is a number, the nodes before it are not; give all nodes numbers, or all of them names"


@pytest.mark.parametrize("name", ["host2", "host01"])
def test_a_host_that_the_cluster_lacks_is_refused(tmp_path: Path, name: str) -> None:
    found = refusal(tmp_path, f"{HEADER}{name},leaf,1,1\n")
    assert found == f":2: '{name}' is not there: the cluster has host0 to host1; rename it, or set cluster.hosts"


def test_a_host_without_a_cable_is_refused(tmp_path: Path) -> None:
    found = refusal(tmp_path, HEADER + "0,4,1,1\n2,4,1,1\n", hosts=3)
    assert found == ": host 1 has no cable, and the cluster has hosts 0 to 2; add one, or lower cluster.hosts"


def test_the_number_of_cables_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cable_file, "MOST_CABLES", 1)
    assert refusal(tmp_path, NUMBERS) == ":3: more than 1 cables; describe a smaller fabric"


def test_fields_may_stand_in_quotes_and_numbers_have_exponents(tmp_path: Path) -> None:
    quoted = '"a","b","gbps","delay_ns"\n"0", 2,1e2,"1.5e3"\n1,"2",1E+2,1500\n'
    plain = HEADER + "0,2,100,1500\n1,2,100,1500\n"

    assert read(tmp_path, quoted) == read(tmp_path, plain)


def test_a_number_with_two_cables_may_be_that_of_a_switch(tmp_path: Path) -> None:
    found = refusal(tmp_path, HEADER + "0,2,1,1\n1,2,1,1\n2,3,1,1\n", hosts=3)

    usual = "host2 has a cable already, on line 2; a host has one, so put a switch between"
    assert found == f":3: {usual}, or set cluster.hosts=2 if this number is a switch"


@pytest.mark.parametrize(
    ("hosts", "said"), [(3, "3 is a switch"), (2, "2 to 3 are switches"), (1, "1 to 3 are switches")]
)
def test_hosts_that_are_taken_for_switches_are_told(tmp_path: Path, hosts: int, said: str) -> None:
    text = HEADER + "0,4,1,1\n1,4,1,1\n2,5,1,1\n3,5,1,1\n4,5,1,1\n"

    wanted = f"{said} of a single cable, as numbers from {hosts} on are no hosts; if hosts were meant, set"
    with pytest.warns(FabricsimWarning, match=f"{wanted} cluster.hosts=4"):
        read(tmp_path, text, hosts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(tmp_path, text, 4)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("ab019,.-\nhostgps_dely#", max_size=80))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    try:
        cables = read(tmp_path, HEADER + text)
    except TraceError:
        return
    assert {"host0", "host1"} <= {node for cable in cables for node in (cable.a, cable.b)}


@given(hosts=st.integers(1, 50), nics=st.integers(1, 9), other=st.integers(0, 10**6))
def test_names_and_numbers_of_nics_tell_the_same(hosts: int, nics: int, other: int) -> None:
    ends = cable_file.Ends(hosts, nics)
    names = [ends.name(number) for number in range(ends.count)]
    assert len(set(names)) == hosts * nics
    assert [ends.number(name) for name in names] == list(range(ends.count))
    strangers = [
        f"host{hosts}",
        f"host{hosts}/nic0",
        f"host0/nic{nics}",
        "host00",
        "leaf0",
        "host0/nic00",
        "spine0/nic1",
    ]
    assert {ends.number(name) for name in strangers} == {None}
    assert (ends.number(ends.name(other)) is None) == (other >= ends.count)
