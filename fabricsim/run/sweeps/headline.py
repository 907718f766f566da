"""Headline results of a run: one flat row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabricsim.results.summary import Summary
    from fabricsim.results.traffic import TrafficSummary

Row = dict[str, str | int | float | None]


def of_job(summary: Summary) -> Row:
    """Say of an iteration how long it takes, what it achieves, and where the time goes."""
    parts, links, causes = summary["breakdown_s"], summary["links"], summary["causes"]
    achieved: dict[str, Any] = {**summary.get("throughput", {})}
    captured = summary.get("capture")
    return {
        "iteration_time_s": summary["iteration_time_s"],
        **({} if captured is None else {"captured_iteration_time_s": captured["captured_iteration_s"]}),
        "tokens_per_s": achieved.get("tokens_per_s"),
        "tflops_per_gpu": achieved.get("tflops_per_gpu"),
        "mfu": achieved.get("mfu"),
        "compute_s": parts["compute"],
        "exposed_communication_s": summary["exposed_communication_s"],
        "host_s": parts["host"],
        "bubble_s": parts["bubble"],
        "overlapped_communication_s": parts["overlapped_communication"],
        "ranks": summary["ranks"],
        "first_cause": causes[0]["cause"] if causes else None,
        "first_cause_share": causes[0]["share"] if causes else None,
        "hottest_link": links[0]["name"] if links else None,
        "hottest_link_utilisation": links[0]["utilisation"] if links else None,
    }


def of_traffic(summary: TrafficSummary) -> Row:
    """Say of traffic when it ended, and how long flows took."""
    spreads: dict[str, Any] = {"completion_time_s": summary["completion_time_s"], "slowdown": summary["slowdown"]}
    links = summary["links"]
    return {
        "makespan_s": summary["makespan_s"],
        **{f"{name}_{key}": value for name, spread in spreads.items() for key, value in spread.items()},
        "flows": summary["flow_count"],
        "total_bytes": summary["total_bytes"],
        "hottest_link": links[0]["name"] if links else None,
        "hottest_link_utilisation": links[0]["utilisation"] if links else None,
    }
