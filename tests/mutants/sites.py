"""Which places of a source file are mutated: everything except text, annotations and compiler settings."""

import ast
import fnmatch
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

Position = tuple[int, int]  # line from 1, column from 0, in characters
Span = tuple[Position, Position]


@dataclass(frozen=True)
class Mutant:
    """One change to one place, and a key that stays the same while the lines around it move."""

    path: str  # of the source file, relative to the root of the project
    operator: str
    occurrence: int  # number of the place among all places of the operator in the file
    line: int
    function: str
    code: str
    key: str


def excluded_spans(source: str, functions: list[str]) -> list[Span]:  # noqa: C901 - one case per kind
    """Places that compute no result: texts, annotations, settings, and functions that write text."""
    lines = source.splitlines()
    spans = []

    def place(line: int, offset: int) -> Position:
        return line, len(lines[line - 1].encode()[:offset].decode())  # ast counts bytes

    def add(node: ast.expr | ast.stmt) -> None:
        begin = place(node.lineno, node.col_offset)
        spans.append((begin, place(node.end_lineno, node.end_col_offset)))

    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) if any(fnmatch.fnmatch(name, one) for one in functions):
                add(node)
            case ast.FunctionDef(args=arguments, returns=returns, decorator_list=decorators):
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                every += [one for one in (arguments.vararg, arguments.kwarg) if one]
                if arguments.kwonlyargs and not arguments.vararg:  # the * before them
                    first, before = arguments.kwonlyargs[0], [*arguments.args, *arguments.defaults]
                    ends = [place(one.end_lineno, one.end_col_offset) for one in before]
                    begin = max(ends, default=place(node.lineno, node.col_offset))
                    spans.append((begin, place(first.lineno, first.col_offset)))
                for annotation in [*(one.annotation for one in every), returns, *decorators]:
                    if annotation is not None:
                        add(annotation)
            case ast.ClassDef(decorator_list=decorators):
                for decorator in decorators:
                    add(decorator)
            case ast.AnnAssign(annotation=annotation):
                add(annotation)
            case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
                add(node)
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                add(node)
            case ast.Call(func=ast.Attribute(attr="warn") | ast.Name(id="warn" | "print" | "cast")):
                add(node)
    return spans


def function_spans(source: str) -> list[tuple[int, int, str]]:
    """First line, last line and qualified name of every function, outer functions first."""
    found = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                found.append((child.lineno, child.end_lineno, name))
                walk(child, f"{name}.")
            else:
                walk(child, prefix)

    walk(ast.parse(source), "")
    return found


def list_mutants(root: Path, path: str, operators: list[str], functions: list[str]) -> list[Mutant]:
    """Every mutant of one file."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    source = (root / path).read_text()
    lines, tree = source.splitlines(), get_ast(source)
    excluded, named = excluded_spans(source, functions), function_spans(source)
    wanted = re.compile("|".join(f"(?:{one})" for one in operators))
    nodes, mutants, seen = list(ast_nodes(tree)), [], {}
    for name in sorted(operator_names()):
        if not wanted.fullmatch(name.partition("/")[2]):
            continue
        operator = get_operator(name)()
        places = [span for node in nodes for span in operator.mutation_positions(node)]
        for occurrence, (begin, _) in enumerate(places):
            if any(low <= begin < high for low, high in excluded):
                continue
            function = next((n for low, high, n in reversed(named) if low <= begin[0] <= high), "")
            code = lines[begin[0] - 1].strip()
            # counts among equal lines of the same function, so that edits elsewhere change no key
            stem = f"{path} {function} {name} {code}"
            seen[stem] = seen.get(stem, -1) + 1
            key = sha256(f"{stem} {seen[stem]}".encode()).hexdigest()[:12]
            mutants.append(Mutant(path, name, occurrence, begin[0], function, code, key))
    return mutants


def draw(by_package: dict[str, list[Mutant]], n: int, least: int, seed: int) -> list[Mutant]:
    """Sample about n mutants, proportional to the packages, at least `least` of each one."""
    total = sum(map(len, by_package.values()))
    sample = []
    for mutants in by_package.values():
        share = min(len(mutants), max(least, -(-n * len(mutants) // total)))
        # a rank by hash: an edited line replaces its own mutants and leaves the others in the sample
        ranked = sorted(mutants, key=lambda one: sha256(f"{seed} {one.key}".encode()).digest())
        sample += ranked[:share]
    return sample
