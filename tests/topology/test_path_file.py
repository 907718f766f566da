from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricsim.errors import TraceError
from fabricsim.topology import path_file
from fabricsim.topology.path_file import GivenPath

HOSTS = 16
HEADER = "id,src,dst,hops,node_path\n"


def read(folder: Path, content: str) -> list[GivenPath]:
    file = folder / "paths"
    file.write_text(content, encoding="utf-8")
    return path_file.read(file, HOSTS)


def refusal(folder: Path, content: str) -> str:
    with pytest.raises(TraceError) as caught:
        read(folder, content)
    return str(caught.value).removeprefix(str(folder / "paths"))


def test_numbers_and_names_are_read(tmp_path: Path) -> None:
    text = HEADER + "1,0,12,4,0-16-20-18-12\n2,host1,host2,2,host1-edge0 - host2\n"
    assert read(tmp_path, text) == [
        GivenPath(2, 0, 12, ("host0", "switch16", "switch20", "switch18", "host12")),
        GivenPath(3, 1, 2, ("host1", "edge0", "host2")),
    ]


def test_id_and_hops_may_be_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, "node_path,dst,src\n3-16-4,4,3\n") == [GivenPath(2, 3, 4, ("host3", "switch16", "host4"))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2,1,2,2,0-16-2", "node_path '0-16-2' begins at host0, not at src 1; mend one of the two"),
        ("2,0,1,2,0-16-2", "node_path '0-16-2' ends at host2, not at dst 1; mend one of the two"),
        ("2,0,2,3,0-16-2", "hops 3, but node_path '0-16-2' has 2; mend one of the two"),
        ("2,0,2,x,0-16-2", "hops 'x' is no whole number from 0"),
        ("2,0,2,4,0-16-17-16-2", "the path comes through switch16 twice; take the loop out"),
        ("2,0,0,0,0", "the path leads from host 0 to itself; name two hosts"),
        ("2,16,2,1,16-2", "src '16' is no host: there are hosts 0 to 15; mend it, or set cluster.hosts"),
        ("2,0,hosts,1,0-16", "dst 'hosts' is no host: there are hosts 0 to 15; mend it, or set cluster.hosts"),
        ("1,0,2,2,0-16-2", "the id 1 is on line 2, too; give each its own"),
        ("-,0,2,2,0-16-2", "id '-' is no whole number from 0"),
        (
            "2,0,2,2,0--2",
            "'' is no node; write a number, or a name of letters, digits, points and underscores",
        ),
        ("2,0,2", "3 values for the 5 columns id,src,dst,hops,node_path; the line is cut or damaged"),
    ],
)
def test_an_impossible_path_is_refused(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(tmp_path, f"{HEADER}1,0,1,2,0-16-1\n{line}\n") == f":3: {message}"


def test_the_number_of_paths_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_file, "MOST_PATHS", 1)
    found = refusal(tmp_path, HEADER + "1,0,1,2,0-16-1\n2,1,0,2,1-16-0\n")
    assert found == ":3: more than 1 paths; leave out what routing finds by itself"


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("0123-,\nhost#", max_size=80))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    try:
        found = read(tmp_path, HEADER + text)
    except TraceError:
        return
    assert all(way.nodes[0] == f"host{way.source}" and way.nodes[-1] == f"host{way.target}" for way in found)
