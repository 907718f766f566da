"""The command that shows what trace and log files hold."""

from fabricsim.cli.common import FormOption, JsonOption, OnlyOption, TracesArgument, progress, say_json, show


def inspect(
    traces: TracesArgument, *, form: FormOption = None, only: OnlyOption = None, as_json: JsonOption = False
) -> None:
    """Show what a trace or a log holds, and what is missing.

    It has ranks, streams, and communications by kind, group and size.
    """
    from fabricsim.scenario import library  # noqa: PLC0415  --help must not pay for it
    from fabricsim.traces.inspecting import inspect as inspected  # noqa: PLC0415  as above

    traces = [library.trace(path) for path in traces]
    with progress("reading") as report:
        found = inspected(traces, form, only=only, progress=report)
    if as_json:
        say_json(found)
        return
    from fabricsim.report.inspection_text import inspection_text  # noqa: PLC0415  as above

    show(inspection_text(found))
