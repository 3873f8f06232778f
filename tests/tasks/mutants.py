"""Small wrong changes of a right program, in a fixed order: what a test set has to catch."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

COMPARE = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitXor: ast.BitAnd,
}  # fmt: skip


def mutants(program: str, entry: str) -> Iterator[tuple[str, str]]:
    """Every (name of the change, program with that one change), in the order of the source.

    Changed are comparisons, operators, constants, and/or, not, and the returned value, in the
    last definition of `entry`.
    """
    tree = ast.parse(program)
    nodes = list(ast.walk(_function(tree, entry)))
    nodes.sort(key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))
    for place, node in enumerate(nodes):
        for name, change in _changes(node):
            changed = copy.deepcopy(tree)
            twins = list(ast.walk(_function(changed, entry)))
            twins.sort(key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))
            change(twins[place])
            yield f"line {node.lineno}: {name}", ast.unparse(ast.fix_missing_locations(changed))


def _function(tree, entry):
    return [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry][-1]


def _changes(node):
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        yield "comparison", lambda n: n.ops.__setitem__(0, COMPARE[type(n.ops[0])]())
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in BINARY:
        yield "operator", lambda n: setattr(n, "op", BINARY[type(n.op)]())
    elif isinstance(node, ast.BoolOp):
        yield (
            "and/or",
            lambda n: setattr(n, "op", ast.Or() if isinstance(n.op, ast.And) else ast.And()),
        )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "sign", lambda n: setattr(n, "op", ast.UAdd() if isinstance(n.op, ast.USub)
                                        else ast.Invert())  # fmt: skip
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        yield (
            "constant",
            lambda n: setattr(
                n, "value", (not n.value) if isinstance(n.value, bool) else n.value + 1
            ),
        )
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "returned value", lambda n: setattr(n, "value", None)
