"""The mutants of a module: the same source with one small fault.

Operators are those of `cosmic-ray`, and one more: a statement that is not there. Replacements that tell
nothing new are left out (`x is None` by `x == None`, `+` by eleven others). So is a mutant that differs from
its module only in annotations, docstrings or options of dataclasses.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

#: Operators of cosmic-ray whose name begins so are used, the replacements below excepted.
_KINDS = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete",
    "ZeroIterationForLoop",
)
#: One replacement of each arithmetic operator is enough.
_BINARY = {
    "Add_Sub",
    "Sub_Add",
    "Mul_FloorDiv",
    "FloorDiv_Mul",
    "Div_Mul",
    "Mod_Mul",
    "BitAnd_BitOr",
    "BitOr_BitAnd",
}
_REMOVED = "statement removed"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One faulty version of a module.

    Attributes:
        module: Path of the module, from the top folder.
        operator: What was done.
        line: Number of the first line that differs.
        before: That line, without indentation.
        after: What stands there now.
        source: The whole faulty module.
        key: Names what the faulty module does; docstrings and annotations don't change it.
    """

    module: str
    operator: str
    line: int
    before: str
    after: str
    source: str
    key: str


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module, each once, by line."""
    meaning = _meaning(source)
    seen = {source}
    found = []
    for operator, mutated in (*_of_cosmic_ray(source), *_removals(source)):
        if mutated in seen:
            continue
        seen.add(mutated)
        try:
            changed = _meaning(mutated)
        except SyntaxError:
            continue
        if changed != meaning:
            key = hashlib.sha256(f"{module}\n{changed}".encode()).hexdigest()[:16]
            found.append(Mutant(module, operator, *_difference(source, mutated), mutated, key))
    yield from sorted(found, key=lambda mutant: (mutant.line, mutant.operator, mutant.after))


def _of_cosmic_ray(source: str) -> Iterator[tuple[str, str]]:
    nodes = list(ast_nodes(get_ast(source)))
    for full_name in cosmic_ray.plugins.operator_names():
        name = full_name.partition("/")[2]
        if not _is_used(name):
            continue
        operator = cosmic_ray.plugins.get_operator(full_name)()
        for occurrence in range(sum(1 for node in nodes for _ in operator.mutation_positions(node))):
            mutated = mutate_code(source, operator, occurrence)
            if mutated is not None:
                yield name, mutated


def _is_used(name: str) -> bool:
    if not name.startswith(_KINDS):
        return False
    kind, _, replacement = name.partition("_")
    if kind == "ReplaceBinaryOperator":
        return replacement in _BINARY
    if kind == "ReplaceComparisonOperator":
        before, _, after = replacement.partition("_")
        return before.startswith("Is") == after.startswith("Is")
    return True


def _removals(source: str) -> Iterator[tuple[str, str]]:
    """The module without one call, assignment to an attribute or item, deletion, raise or return."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if not _is_removable(node):
            continue
        assert isinstance(node, ast.stmt)
        assert node.end_lineno is not None
        before, after = lines[: node.lineno - 1], lines[node.end_lineno :]
        indent = lines[node.lineno - 1][: node.col_offset]
        yield _REMOVED, "".join([*before, f"{indent}pass\n", *after])


def _is_removable(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Raise():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() | ast.Tuple()]) | ast.AugAssign():
            return True
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr()) | ast.Return(value=None):
            return True
    return False


def _meaning(source: str) -> str:
    """The program without annotations, docstrings and options of dataclasses."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
            node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) != "abstractmethod"]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dataclass":
            node.keywords = []  # frozen and slots forbid uses; no correct program fails without them
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value="")
        body = getattr(node, "body", None)
        match body:
            case [ast.Expr(value=ast.Constant() as docstring), *_]:
                docstring.value = ""
    return ast.dump(tree)


def _difference(source: str, mutated: str) -> tuple[int, str, str]:
    before, after = source.splitlines(), mutated.splitlines()
    first = next(
        (i for i, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)) - 1,
    )
    return first + 1, before[first].strip(), after[first].strip()
