"""What operators, fields, calls and macros of CEL do, as functions of the variables."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from slicewise.explain.cel.functions import (
    Absent,
    CelError,
    MissingKeyError,
    Optional,
    find_member,
    order,
    same,
)

MAX_INT: Final = 2**63
_MAX_SIZE: Final = 10 * 1024


class Scope:
    """The variables of one evaluation, and the steps that are left to it."""

    __slots__ = ("steps", "variables")

    def __init__(self, variables: Mapping[str, Any], steps: list[int]) -> None:
        self.variables = variables
        self.steps = steps

    def bind(self, name: str, value: object) -> "Scope":
        """The same with one more variable."""
        return Scope({**self.variables, name: value}, self.steps)


Node = Callable[[Scope], Any]


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r}: expected true or false")
    return value


def choose(test: Node, first: Node, second: Node) -> Node:
    """The first where the test holds, else the second."""
    return lambda scope: first(scope) if _truth(test(scope)) else second(scope)


def _join(left: Node, right: Node, *, decides: bool) -> Node:
    """`||` where true decides, `&&` where false does: an error beside what decides is no error."""

    def joined(scope: Scope) -> bool:
        try:
            first = _truth(left(scope))
        except CelError:
            if _truth(right(scope)) is decides:
                return decides
            raise
        return decides if first is decides else _truth(right(scope))

    return joined


def _either(left: Node, right: Node) -> Node:
    return _join(left, right, decides=True)


def _both(left: Node, right: Node) -> Node:
    return _join(left, right, decides=False)


def _compare(test: Callable[[int, int], bool]) -> Callable[[Node, Node], Node]:
    return lambda left, right: lambda scope: test(order(left(scope), right(scope)), 0)


def _equal(left: Node, right: Node) -> Node:
    return lambda scope: same(left(scope), right(scope))


def _unequal(left: Node, right: Node) -> Node:
    return lambda scope: not same(left(scope), right(scope))


def _contains(left: Node, right: Node) -> Node:
    def contains(scope: Scope) -> bool:
        value, among = left(scope), right(scope)
        if isinstance(among, Mapping):
            return isinstance(value, str) and value in among
        if isinstance(among, Sequence) and not isinstance(among, str):
            return any(same(value, each) for each in among)
        raise CelError("in: expected a list or a map")

    return contains


def _add(left: Node, right: Node) -> Node:
    def add(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        if isinstance(a, str) and isinstance(b, str):
            return _bounded(a + b)
        if isinstance(a, list) and isinstance(b, list):
            return _bounded(a + b)
        return _calculate(operator.add, a, b)

    return add


def _bounded(value: Any) -> Any:
    if len(value) > _MAX_SIZE:
        raise CelError("a value grew too large")
    return value


def _arithmetic(
    work: Callable[[Any, Any], Any],
) -> Callable[[Node, Node], Node]:
    return lambda left, right: lambda scope: _calculate(work, left(scope), right(scope))


def _calculate(work: Callable[[Any, Any], Any], a: object, b: object) -> Any:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    if not numbers or isinstance(a, bool) or isinstance(b, bool) or type(a) is not type(b):
        raise CelError("expected two numbers of one kind")
    try:
        result = work(a, b)
    except (ZeroDivisionError, OverflowError) as error:
        raise CelError(str(error)) from error
    if isinstance(result, int) and abs(result) >= MAX_INT:
        raise CelError("number too large")
    return result


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, float):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: Any, b: Any) -> Any:
    return a - _divide(a, b) * b


def negate(node: Node, *, odd: bool) -> Node:
    """The opposite, as often as it was asked for."""
    return lambda scope: _truth(node(scope)) is not odd


def negative(node: Node, *, odd: bool) -> Node:
    """The negative, as often as it was asked for."""
    return lambda scope: _calculate(operator.mul, node(scope), -1 if odd else 1)


def select(node: Node, field: str, *, optional: bool) -> Node:
    """What stands under a field."""
    return index(node, lambda _: field, optional=optional)


def index(node: Node, key: Node, *, optional: bool) -> Node:
    """What stands under a key; an optional where it may be absent."""

    def find(scope: Scope) -> Any:
        value, at = node(scope), key(scope)
        inner = value.value if isinstance(value, Optional) else value
        found = Absent if inner is Absent else find_member(inner, at)
        if optional or isinstance(value, Optional):
            return Optional(found)
        if found is Absent:
            raise MissingKeyError(str(at))
        return found

    return find


def make_list(items: Sequence[Node]) -> Node:
    """The list of these."""
    return lambda scope: [each(scope) for each in items]


def call(function: Callable[..., Any], arguments: Sequence[Node]) -> Node:
    """The function of these arguments."""

    def call(scope: Scope) -> Any:
        try:
            return _check(function(*(each(scope) for each in arguments)))
        except TypeError as error:
            raise CelError(f"wrong arguments: {error}") from error

    return call


def _check(value: Any) -> Any:
    return _bounded(value) if isinstance(value, str | list) else value


def run_macro(name: str, node: Node, variable: str, body: Node) -> Node:
    """What a macro makes of a list or of the keys of a map."""

    def run(scope: Scope) -> Any:
        found = node(scope)
        if isinstance(found, str) or not isinstance(found, Sequence | Mapping):
            raise CelError(f"{name}: expected a list or a map")
        values = list(found)
        if name == "map":
            return [body(scope.bind(variable, each)) for each in values]
        if name == "filter":
            return [each for each in values if _truth(body(scope.bind(variable, each)))]
        kept = sum(_truth(body(scope.bind(variable, each))) for each in values)
        if name == "all":
            return kept == len(values)
        return kept == 1 if name == "exists_one" else kept > 0

    return run


LEVELS: Final[tuple[Mapping[str, Callable[[Node, Node], Node]], ...]] = (
    {"||": _either},
    {"&&": _both},
    {
        "==": _equal,
        "!=": _unequal,
        "<": _compare(operator.lt),
        "<=": _compare(operator.le),
        ">": _compare(operator.gt),
        ">=": _compare(operator.ge),
        "in": _contains,
    },
    {"+": _add, "-": _arithmetic(operator.sub)},
    {
        "*": _arithmetic(operator.mul),
        "/": _arithmetic(_divide),
        "%": _arithmetic(_remainder),
    },
)
