"""Which law of congestion control and which load-balancing rule answers: records and kernels for those of a network.

Laws and rules have numbers in the records of transports. For each thing that they are told there is one kernel, written
here, that branches on that number and calls the kernel of the law or rule, which the compiler inlines. All laws and
rules of fabricsim share one such set; a user's law or rule has its own, and programs that are compiled for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricsim.errors import InputError
from fabricsim.extensions import is_ours
from fabricsim.jit.compile import DISABLED, Kernel, inlined, kernel
from fabricsim.jit.mistakes import compile_alone, require_own_columns
from fabricsim.records.transport import FLOW, LAW, extended
from fabricsim.scenario.balancing import RULES, LoadBalancing
from fabricsim.scenario.congestion import LAWS, Law
from fabricsim.scenario.in_force import law_in_force, rule_in_force
from fabricsim.scenario.suggest import closest

if TYPE_CHECKING:
    from fabricsim.scenario.transport import Transport

    Function = Callable[..., Any]
    Choice = type[Law | LoadBalancing]

_REQUIRED = ("start", "acknowledge", "lose", "time_out")
_OF_LAWS = {
    "start": "flow, law",
    "acknowledge": "flow, law, now, packets, marked, rtt",
    "lose": "flow, law, now",
    "time_out": "flow, law, now",
    "restart": "flow, law",
    "notify": "flow, law, now",
    "pull": "flow, law, number",
    "ride": "flow, law",
    "advance": "flow, law, now",
    "sent": "flow, law, wire",
}
"""Kernels of laws, and what they are given."""
_OF_RULES = {"renew": ("flow, law, now", "False"), "weigh": ("law, place, drain", "drain")}
"""Kernels of rules, what they are given, and the answer for a rule that has none."""
_INLINED = ("advance", "sent", "weigh")

_ALL_OF_AN_ACK = "net, flow, law, now, packets, marked, rtt, echo, slot"
_TELEMETRY = "flow, law, now, packets, net.telemetry, echo, slot"
_IS_OF_THIS_PACKET = "net.telemetry[flow.first_telemetry + slot * flow.hops].stamp == now - rtt"  # not of a later one


def hook(choice: type[object], name: str) -> Function | None:
    """Return the kernel of a law or rule by its name; None if there is none beside its class."""
    return getattr(sys.modules[choice.__module__], name, None)


def tell(choice: Choice, name: str, *told: Any) -> Any:  # noqa: ANN401  what kernels take and return
    """Call a kernel of a law or rule if there is one, compiled or not; returns what it does, or None."""
    act = hook(choice, name)
    return None if act is None else act(*told)


@dataclass(frozen=True)
class Dispatch:
    """The laws and rules that a network knows; their numbers are their places.

    `laws`, `rules`: at least one of each.
    """

    laws: tuple[type[Law], ...]
    rules: tuple[type[LoadBalancing], ...]

    @cached_property
    def flow(self) -> np.dtype[np.void]:
        """Record of a flow."""
        return extended(FLOW, self._columns(FLOW, "state"))

    @cached_property
    def law(self) -> np.dtype[np.void]:
        """Record of a transport."""
        return extended(LAW, self._columns(LAW, "parameters"))

    def _columns(self, record: np.dtype[np.void], kind: str) -> dict[str, type]:
        """Gather columns: those of one name and type are shared."""
        found: dict[str, type] = {}
        choices: list[Choice] = [*self.laws, *self.rules]
        for choice in choices:
            for name, column in _numbers(choice, kind).items():
                if name in (record.names or ()) or hasattr(np.record, name) or found.setdefault(name, column) != column:
                    msg = (
                        f"{file_of(choice)}: {kind} of {choice.__name__}: {name!r} is taken; call the column otherwise"
                    )
                    raise InputError(msg)
        return found

    def check(self) -> None:
        """Compile each kernel of a user's law and rule alone: what is wrong with one is found early, and by its place.

        Raises InputError if one cannot be compiled, or sets what is not its own.
        """
        numbers = dict.fromkeys(("now", "packets", "marked", "rtt", "number", "wire", "place", "drain"), 0)
        given = {"flow": np.zeros(1, self.flow)[0], "law": np.zeros(1, self.law)[0], **numbers}
        shapes = {**_OF_LAWS, **{name: arguments for name, (arguments, _) in _OF_RULES.items()}}
        both: list[Choice] = [*self.laws, *self.rules]
        for choice in (each for each in both if not is_ours(each)):
            _require_known(choice, shapes)
            for name, arguments in shapes.items():
                act = hook(choice, name)
                unknown = name == "acknowledge" and getattr(choice, "telemetry", False)  # the type of telemetry
                if act is not None and not DISABLED and not unknown:
                    told = [given[each] for each in arguments.split(", ")]
                    compile_alone(act, told, f"{name}({arguments})", answers=name in _OF_RULES)
            require_own_columns(sys.modules[choice.__module__], _settable(choice))  # those that are there at all

    def note(self, rows: np.ndarray) -> None:
        """Fill in what records of transports say of law and rule beside their numbers."""
        laws = [self.laws[number] for number in rows["law"]]
        rules = [self.rules[number] for number in rows["balance"]]
        rows["each_loss"], rows["pulled"] = [law.each_loss for law in laws], [law.pulled for law in laws]
        rows["renews"], rows["weighs"] = ([hook(rule, name) is not None for rule in rules] for name in _OF_RULES)
        rows["one_path"] = [rule.one_path for rule in rules]
        plain = np.array([law.window_only for law in laws])
        rows["plain"] = plain & (rows["renews"] == 0) & (rows["device_queue"] == 0)

    @cached_property
    def kernels(self) -> dict[str, Function]:
        """Those that call the kernels of laws and rules, by the same names."""
        made = {name: self._of_laws(name, arguments) for name, arguments in _OF_LAWS.items()}
        return made | {name: self._of_rules(name, *shape) for name, shape in _OF_RULES.items()}

    def _of_laws(self, name: str, arguments: str) -> Function:
        """Write a kernel that tells the law in force; `acknowledge` gives telemetry to laws that want it."""
        called, cases = {}, []
        for number, law in enumerate(self.laws):
            act = hook(law, name)
            if act is None and name in _REQUIRED:
                raise InputError(f"{file_of(law)}: has no kernel {name}({arguments}): define it, if only to do nothing")
            if act is not None:
                called[f"{name}_{number}"] = act
                told = name == "acknowledge" and law.telemetry
                call = f"{name}_{number}({_TELEMETRY if told else arguments})"
                cases.append((f"law.law == {number}{f' and {_IS_OF_THIS_PACKET}' if told else ''}", call))
        return _kernel(name, _ALL_OF_AN_ACK if name == "acknowledge" else arguments, cases, "pass", called)

    def _of_rules(self, name: str, arguments: str, otherwise: str) -> Function:
        called = {f"{name}_{number}": act for number, rule in enumerate(self.rules) if (act := hook(rule, name))}
        cases = [(f"law.balance == {act.rpartition('_')[2]}", f"return {act}({arguments})") for act in called]
        return _kernel(name, arguments, cases, f"return {otherwise}", called)


def _numbers(choice: Choice, kind: str) -> Mapping[str, type]:
    """Return the columns that a law or rule declares."""
    declared = getattr(choice, kind)
    if isinstance(declared, Mapping) and all(isinstance(each, type | np.dtype) for each in declared.values()):
        return declared
    msg = f'{file_of(choice)}: {kind} of {choice.__name__} is {declared}; write types by name: {{"cut_at": np.int64}}'
    raise InputError(msg)


def _settable(choice: Choice) -> dict[str, str]:
    """Return the columns of a flow that kernels of a law or rule may set, and the only value of one that has one."""
    own = dict.fromkeys(choice.state, "")
    if issubclass(choice, LoadBalancing):
        return own
    return {"window": "", "threshold": "", "rate": "np.inf" if choice.window_only else "", **own}


def file_of(choice: Choice) -> str:
    """Name the file of a law or rule."""
    return sys.modules[choice.__module__].__file__ or choice.__module__


def _kernel(
    name: str, arguments: str, cases: list[tuple[str, str]], last: str, called: dict[str, Function]
) -> Function:
    """Compile a kernel that does the first of some cases, each a condition and what to do, or else the last thing."""
    branches = "".join(f"    {'elif' if at else 'if'} {when}:\n        {do}\n" for at, (when, do) in enumerate(cases))
    space: dict[str, Any] = {**called, "__name__": __name__}
    text = f"def {name}({arguments}):\n{branches}    {'else:' if cases else 'if True:'}\n        {last}\n"
    exec(compile(text, f"<{name} of all laws and rules>", "exec"), space)  # noqa: S102  written above, of names and numbers
    return (inlined if name in _INLINED else kernel)(space[name])


def _require_known(choice: Choice, shapes: Mapping[str, str]) -> None:
    """Refuse a rule that says nothing, and what looks like a kernel's name misspelled."""
    there = vars(sys.modules[choice.__module__])
    if issubclass(choice, LoadBalancing) and not there.keys() & _OF_RULES:
        msg = f"{file_of(choice)}: has neither of the kernels {' and '.join(_OF_RULES)}: define one, or both"
        raise InputError(msg)
    for name in (name for name, each in there.items() if isinstance(each, Kernel) and name not in shapes):
        if meant := closest(name, shapes.keys() - there - {*_REQUIRED}):
            msg = f"{file_of(choice)}: nothing calls {name}: write {meant}({shapes[meant]}), or name it otherwise"
            raise InputError(msg)


@cache
def built_in() -> Dispatch:
    """Return the laws and rules of fabricsim."""
    return Dispatch(tuple(LAWS.own.values()), tuple(RULES.own.values()))


@cache
def _of(law: type[Law], rule: type[LoadBalancing]) -> Dispatch:
    both = built_in()
    made = Dispatch(both.laws if law in both.laws else (law,), both.rules if rule in both.rules else (rule,))
    made.check()
    return made


def dispatch(transport: Transport) -> Dispatch:
    """Return the laws and rules with which a transport runs."""
    own, both = _of(type(law_in_force(transport)), type(rule_in_force(transport))), built_in()
    return both if own == both else own
