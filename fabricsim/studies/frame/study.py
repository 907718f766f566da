"""What a study is, and which there are.

A module of `fabricsim.studies`, or a user's file, declares one as ``STUDY``. Most hold single figures against a
run each: `by_row` makes the study of them. Others compare what many runs give together, by their own `Study.compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricsim import extensions, measured
from fabricsim.errors import InputError
from fabricsim.extensions import Registry, require_functions
from fabricsim.results.validation import Validation, ValidationRow
from fabricsim.run.model_error import interval, model_spread
from fabricsim.scenario.suggest import did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[float], None]
"""Called with the share of the work done."""
Pictures = Callable[[Validation], Iterable[tuple[str, "Figure"]]]
"""Gives the name of each picture's file and the picture."""

AGAINST = ("measurements", "simulators", "engines", "volumes")
"""What studies hold predictions against, in the order in which they are run."""


def silent(share: float) -> None:
    """Report nothing."""
    del share


@dataclass(frozen=True)
class Study:
    """A comparison of predictions with what is known.

    Attributes
    ----------
    name
        On the command line.
    about
        What is compared, and where it is from; its first line is a title.
    compare
        Makes all predictions and puts them beside what is known.
    pictures
        Draws what was found.
    against
        One of `AGAINST`.
    engine
        That runs it, if one alone does.
    others
        The same study on other engines.
    uncertain
        Compares with an interval for each prediction, of a number of runs.
    """

    name: str
    about: str
    compare: Callable[[Progress], Validation]
    pictures: Pictures = lambda _found: ()
    against: str = AGAINST[0]
    engine: str | None = "flow"
    others: tuple[Study, ...] = ()
    uncertain: Callable[[int, Progress], Validation] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be called, and what studies are not held against."""
        uncertain = {} if self.uncertain is None else {"uncertain": self.uncertain}
        require_functions(f"study {self.name!r}", compare=self.compare, pictures=self.pictures, **uncertain)
        if self.against not in AGAINST:
            raise InputError(f"study {self.name!r}: against is {self.against!r}; give one of {', '.join(AGAINST)}")

    def validate(self, progress: Progress = silent, uncertainty: int = 0) -> Validation:
        """Run the study.

        Parameters
        ----------
        progress
            Called with the share of the work done.
        uncertainty
            Runs for the interval of each prediction; 0 if none is wanted.

        Raises
        ------
        InputError
            If the study has no intervals, or one of a user gives something else.
        """
        if not uncertainty:
            return extensions.answer(self.compare, Validation, progress)
        if self.uncertain is None:
            raise _without_intervals(self.name)
        return extensions.answer(self.uncertain, Validation, uncertainty, progress)

    def draw(self, found: Validation, folder: Path) -> list[Path]:
        """Draw what was found into a folder; returns the files written.

        Raises
        ------
        InputError
            If a picture of a user is none, or its name has folders.
        """
        from matplotlib.figure import Figure  # noqa: PLC0415  takes a while

        from fabricsim.report.plots import save  # noqa: PLC0415  imports matplotlib

        paths = []
        for picture in extensions.answers(self.pictures, tuple, found):
            match picture:
                case (str() as name, Figure() as figure) if Path(name).name == name:
                    paths.append(folder / name)
                    save(figure, paths[-1])
                case _:
                    msg = f'study {self.name}: pictures gives {picture!r}; give names and figures: ("a.svg", figure)'
                    raise InputError(msg)
        return paths

    def on(self, engine: str | None) -> Study:
        """Return the study as it runs on an engine; None for its own.

        Raises
        ------
        InputError
            If it has no runs by that engine.
        """
        ways = {study.engine: study for study in (self, *self.others)}
        if engine is None or engine in ways:
            return self if engine is None else ways[engine]
        both = "it runs on both engines; leave --engine out"
        known = both if self.engine is None else f"it has {', '.join(map(str, ways))}"
        raise InputError(f"study {self.name} has no runs by engine {engine!r}; {known}")


def _without_intervals(study: str) -> InputError:
    return InputError(f"--uncertainty: predictions of the study {study} have no intervals; leave it out")


@dataclass(frozen=True)
class Published:
    """A published figure, and how it is predicted.

    Attributes
    ----------
    quantity, unit, value, source, certainty
        As in `fabricsim.results.validation.ValidationRow`.
    predict
        Gives the figure in the same unit.
    groups
        What the row counts in, such as its source or GPU: the summary has the errors of each group.
    missing
        Why it is not predicted; empty if it is.
    drawn
        Gives what a number of runs with drawn parameters predict, in the same unit; None if there are none.
    """

    quantity: str
    unit: str
    value: float
    source: str
    certainty: str
    predict: Callable[[], float]
    groups: tuple[str, ...] = ()
    missing: str = ""
    drawn: Callable[[int], Sequence[float]] | None = None

    def row(self, runs: int = 0, model: float = 0.0) -> ValidationRow:
        """Predict the figure, with an interval of some runs if there are any, for a model with such an error."""
        found = interval(self.drawn(runs), model) if runs and self.drawn is not None else None
        source, certainty = self.source, self.certainty
        return ValidationRow(self.quantity, self.unit, self.value, self.predict(), source, certainty, found)


def by_row(  # noqa: PLR0913  what a study declares, by name
    name: str,
    about: str,
    rows: Callable[[], Sequence[Published]],
    *,
    statistics: Callable[[Sequence[ValidationRow]], Mapping[str, float]],
    pictures: Pictures,
    parameters: Callable[[], Mapping[str, Any]] | None = None,
    first: tuple[str, ...] = ("all",),
) -> Study:
    """Make a study whose rows are predicted one after the other.

    Parameters
    ----------
    name, about, pictures
        As in `Study`.
    rows
        Gives the published figures.
    statistics
        Condenses the rows of a group, such as `fabricsim.studies.frame.training.agreement`.
    parameters
        What was assumed and set; the conditions of the measured table of that name if left out.
    first
        Groups that come first in the summary, others by their place in `Published.groups`; ``"all"`` has all rows.
    """
    require_functions(f"study {name!r}", rows=rows, statistics=statistics, parameters=parameters or dict)

    def compare(progress: Progress) -> Validation:
        return uncertain(0, progress)

    def uncertain(runs: int, progress: Progress) -> Validation:
        published = rows()
        if runs and not any(each.drawn for each in published):
            raise _without_intervals(name)
        model = model_spread(but=name) if runs else 0.0
        found: list[tuple[tuple[str, ...], ValidationRow]] = []
        left_out: dict[str, str] = {}
        for done, each in enumerate(published, start=1):
            if each.missing:
                left_out[f"{each.quantity} [{each.source}]"] = each.missing
                continue
            found.append((each.groups, each.row(runs, model)))
            progress(done / len(published))
        every = [row for _, row in found]
        agreement = {group: statistics(some) for group, some in _grouped(found, first).items()}
        summary: dict[str, Any] = {"agreement": agreement}
        if asked := [row for row in every if row.interval is not None]:
            summary["inside_their_interval"] = sum(row.inside for row in asked) / len(asked)
        said = dict(measured.load(name).conditions) if parameters is None else parameters()
        return Validation(name, every, summary, said, left_out)

    return Study(name, about, compare, pictures, uncertain=uncertain)


def _grouped(
    found: Iterable[tuple[tuple[str, ...], ValidationRow]], first: tuple[str, ...]
) -> dict[str, list[ValidationRow]]:
    """Collect the rows of each group: those of `first`, then the others by their place in `Published.groups`."""
    groups: dict[str, list[ValidationRow]] = {group: [] for group in first}
    kinds = dict.fromkeys(first, -1)
    for named, row in found:
        if "all" in first:
            groups["all"].append(row)
        for kind, group in enumerate(named):
            groups.setdefault(group, []).append(row)
            kinds.setdefault(group, kind)
    return {group: groups[group] for group in sorted(groups, key=kinds.__getitem__) if groups[group]}


def headline_rows(table: str, predicted: Mapping[str, float]) -> list[ValidationRow]:
    """Put predicted figures beside those of a table of headline figures, by key."""
    return [
        ValidationRow(figure.quantity, figure.unit, figure.value, predicted[key], figure.source, figure.certainty)
        for key, figure in measured.figures(table).items()
    ]


STUDIES: Registry[Study] = Registry("studies", "fabricsim.studies", "STUDY", Study)
"""All studies."""


def studies() -> list[Study]:
    """Return the studies that there are, in the order in which they are run."""
    return sorted(STUDIES.all().values(), key=lambda study: (AGAINST.index(study.against), study.name))


def study_of(name: str) -> Study:
    """Return a study by its name, or that of a user's Python file.

    Raises
    ------
    InputError
        If there is no such study, or the file cannot be run.
    """
    if extensions.is_file(name):
        extensions.run(name)
    found = STUDIES.find(name)
    if found is None:
        raise InputError(f"there is no study {name!r}; {did_you_mean(name, STUDIES.all())}")
    return found
