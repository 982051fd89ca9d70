"""The part of CEL, Kubernetes' expression language, that selectors of devices are written in.

An expression is parsed once into nested functions and evaluated in counted steps, so that none
takes long whatever a tenant writes. What is not known here is an error of parsing, never a guess.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from slicewise.explain.cel.functions import (
    FUNCTIONS,
    METHODS,
    Absent,
    CelError,
    CelSyntaxError,
    find_member,
)
from slicewise.explain.cel.operations import (
    LEVELS,
    MAX_INT,
    Node,
    Scope,
    call,
    choose,
    index,
    make_list,
    negate,
    negative,
    run_macro,
    select,
)

# Kubernetes takes no longer ones.
MAX_LETTERS: Final = 10 * 1024
MAX_NODES: Final = 1000
MAX_DEPTH: Final = 40
MAX_STEPS: Final = 10_000
_TOKEN: Final = re.compile(
    r"""\s*(?://[^\n]*\n\s*)*(?:
    (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0x[0-9a-fA-F]+|\d+)[uU]?
    |(?P<raw>[rR](?:"[^"\n]*"|'[^'\n]*'))
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]])
    |(?P<end>$))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?",
}  # fmt: skip
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.ASCII)
_WORDS: Final = {"true": True, "false": False, "null": None}
_MACROS: Final = frozenset(("all", "exists", "exists_one", "map", "filter"))


@dataclass(frozen=True, slots=True)
class Program:
    """An expression that was understood."""

    expression: str
    _node: Node

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Its value; raises CelError where it has none, or takes too many steps."""
        return self._node(Scope(variables, [MAX_STEPS]))


def parse(expression: str) -> Program:
    """The program of an expression; raises CelSyntaxError where it is not known here."""
    if len(expression) > MAX_LETTERS:
        raise CelSyntaxError(f"{len(expression)} letters: expected at most {MAX_LETTERS}")
    parser = _Parser(expression)
    node = parser.parse_all()
    return Program(expression, node)


class _Parser:
    """Recursive descent over the tokens, lowest precedence first."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._kind, self._token = "", ""
        self._at = self._next_at = 0
        self._nodes = self._depth = 0
        self._known: list[str] = ["device"]
        self._advance()

    def parse_all(self) -> Node:
        node = self._ternary()
        if self._kind != "end":
            self._refuse()
        return node

    def _advance(self) -> str:
        taken = self._token
        found = _TOKEN.match(self._text, self._next_at)
        if found is None or found.lastgroup is None:
            raise CelSyntaxError(f"letter {self._next_at + 1}: not understood")
        self._at, self._next_at = found.start(found.lastgroup), found.end()
        self._kind, self._token = found.lastgroup, found.group(found.lastgroup)
        return taken

    def _refuse(self, what: str = "") -> NoReturn:
        word = what or self._token or "the end"
        raise CelSyntaxError(f"letter {self._at + 1}: {word!r} is not understood")

    def _take(self, sign: str) -> bool:
        if self._kind == "sign" and self._token == sign:
            self._advance()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            self._refuse()

    def _count(self, node: Node) -> Node:
        """The node with one step counted at every evaluation."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise CelSyntaxError(f"more than {MAX_NODES} parts")

        def counted(scope: Scope) -> Any:
            steps = scope.steps
            steps[0] -= 1
            if steps[0] < 0:
                raise CelError(f"more than {MAX_STEPS} steps")
            return node(scope)

        return counted

    def _ternary(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CelSyntaxError(f"nested deeper than {MAX_DEPTH}")
        node = self._binary(0)
        if self._take("?"):
            first = self._ternary()
            self._expect(":")
            node = self._count(choose(node, first, self._ternary()))
        self._depth -= 1
        return node

    def _binary(self, level: int) -> Node:
        if level == len(LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while self._token in LEVELS[level] and self._kind in ("sign", "name"):
            word = self._advance()
            node = self._count(LEVELS[level][word](node, self._binary(level + 1)))
        return node

    def _unary(self) -> Node:
        negations, minuses = 0, 0
        while self._kind == "sign" and self._token in ("!", "-"):
            if self._advance() == "!":
                negations += 1
            else:
                minuses += 1
            if negations + minuses > MAX_DEPTH or (negations and minuses):
                self._refuse()
        node = self._member()
        if negations:
            node = self._count(negate(node, odd=negations % 2 == 1))
        elif minuses:
            node = self._count(negative(node, odd=minuses % 2 == 1))
        return node

    def _member(self) -> Node:
        node, field = self._primary(), ""
        while self._kind == "sign" and self._token in (".", ".?", "[", "[?"):
            sign = self._advance()
            if sign.startswith("["):
                key = self._ternary()
                self._expect("]")
                node = self._count(index(node, key, optional=sign == "[?"))
                continue
            if self._kind != "name":
                self._refuse()
            field = self._advance()
            if sign == "." and self._take("("):
                node = self._count(self._method(node, field))
            else:
                node = self._count(select(node, field, optional=sign == ".?"))
        return node

    def _method(self, node: Node, name: str) -> Node:
        if name in _MACROS:
            return self._macro(node, name)
        if name not in METHODS:
            self._refuse(f"{name}()")
        return call(METHODS[name], (node, *self._arguments()))

    def _arguments(self) -> list[Node]:
        """What stands between parentheses, of which the first has been taken."""
        found: list[Node] = []
        if self._take(")"):
            return found
        while True:
            found.append(self._ternary())
            if self._take(")"):
                return found
            self._expect(",")

    def _macro(self, node: Node, name: str) -> Node:
        if self._kind != "name":
            self._refuse()
        variable = self._advance()
        self._expect(",")
        self._known.append(variable)
        body = self._ternary()
        self._known.pop()
        self._expect(")")
        return run_macro(name, node, variable, body)

    def _primary(self) -> Node:
        kind, at = self._kind, self._at
        if kind == "name":
            return self._name()
        if kind in ("int", "float", "raw", "text"):
            value = _read_literal(kind, self._advance(), at)
            return self._count(lambda _: value)
        if self._take("("):
            node = self._ternary()
            self._expect(")")
            return node
        if not self._take("["):
            self._refuse()
        return self._count(make_list(self._items()))

    def _items(self) -> list[Node]:
        found: list[Node] = []
        while not self._take("]"):
            found.append(self._ternary())
            if not self._take(","):
                self._expect("]")
                break
        return found

    def _name(self) -> Node:
        name = self._advance()
        if name in _WORDS:
            value = _WORDS[name]
            return self._count(lambda _: value)
        if name in ("cel", "optional") and name not in self._known:
            return self._named_function(name)
        if self._take("("):
            if name == "has":
                return self._count(self._has())
            if name not in FUNCTIONS:
                self._refuse(f"{name}()")
            return self._count(call(FUNCTIONS[name], self._arguments()))
        if name not in self._known:
            self._refuse(name)
        return self._count(lambda scope: scope.variables[name])

    def _named_function(self, name: str) -> Node:
        self._expect(".")
        function = f"{name}.{self._advance()}"
        self._expect("(")
        if function == "cel.bind":
            variable = self._advance()
            self._expect(",")
            value = self._ternary()
            self._expect(",")
            self._known.append(variable)
            body = self._ternary()
            self._known.pop()
            self._expect(")")
            return self._count(lambda scope: body(scope.bind(variable, value(scope))))
        if function not in FUNCTIONS:
            self._refuse(f"{function}()")
        return self._count(call(FUNCTIONS[function], self._arguments()))

    def _has(self) -> Node:
        """The macro that tells whether the last field of its argument is there."""
        node = self._primary()
        fields: list[tuple[str, Node | str]] = []
        while self._kind == "sign" and self._token in (".", "["):
            if self._advance() == ".":
                fields.append((".", self._advance()))
            else:
                fields.append(("[", self._ternary()))
                self._expect("]")
        self._expect(")")
        if not fields or fields[-1][0] != ".":
            self._refuse("has()")
        for sign, field in fields[:-1]:
            if sign == ".":
                node = select(node, str(field), optional=False)
            elif callable(field):
                node = index(node, field, optional=False)
        last = str(fields[-1][1])
        return lambda scope: find_member(node(scope), last) is not Absent


def _read_literal(kind: str, token: str, at: int) -> object:
    if kind == "int":
        value = int(token, 0) if token.startswith("0x") else int(token)
        if value > MAX_INT:
            raise CelSyntaxError(f"letter {at + 1}: number too large")
        return value
    if kind == "float":
        return float(token)
    if kind == "raw":
        return token[2:-1]
    return _ESCAPE.sub(lambda found: _unescape(found.group(1), at), token[1:-1])


def _unescape(word: str, at: int) -> str:
    if word[0] in "ux" and len(word) > 1:
        return chr(int(word[1:], 16))
    if word not in _ESCAPES:
        raise CelSyntaxError(f"letter {at + 1}: '\\{word}' is not understood")
    return _ESCAPES[word]
