"""Checks the prose of the project: docstrings, comments and documents.

`docs/style.md` has the rules. Four of them can be checked by a program:

- `long-sentence`: a sentence has more words than the limit.
- `repeated-argument`: the same few words describe the same argument in more than three docstrings.
- `repeats-signature`: every word in the description of an argument is also in its name, its type, or the
  name of its function. Words such as "the" don't count. The same rule applies to the one-line docstring of
  a private function or class and its signature.
- `habit`: a sentence has a turn of phrase that reads as translated, or a docstring opens with a question
  word.

The second rule allows descriptions of five words or more, and those that name a unit or code. The docstring
of a public method must suffice by itself, even if it repeats another one.

Without arguments the program prints the number of findings in each folder. With files or folders it lists
the findings there. With `--strict` it fails on findings, except in files and folders that
`[tool.check_prose]` of `pyproject.toml` names as not clean yet. Habits have a list of their own there. These
lists only get shorter: a listed name without findings fails, too.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Maximum number of words in a sentence.
LIMIT: Final = 25
#: Maximum number of docstrings with the same description of an argument.
REPEATS: Final = 3
#: A description with at least this many words may be repeated.
USEFUL: Final = 5

HABIT: Final = "habit"
RULES: Final = ("long-sentence", "repeated-argument", "repeats-signature", HABIT)

#: Words that say nothing by themselves.
EMPTY_WORDS: Final = frozenset(
    """
    a an and are as at be by for from given has have if in into is it its make makes of on one or
    return returns that the their them they this to was what which with
    """.split()  # noqa: SIM905
)

_HABITS = re.compile(
    r"\b(nobody|somebody|whoever|goes on|(?:is|are|was|were|be|been|being) told)\b", re.IGNORECASE
)
_RIDDLE = re.compile(r"(What|How|Where|When|Which)\b(?!.*\?$)")
_UNIT = re.compile(r"\b(micro|milli)?seconds?\b|\bbytes?\b|`", re.IGNORECASE)
_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Example|Examples|Note|Notes):$")
_ENTRY = re.compile(r"(\*{0,2}\w+)(?: \([^)]*\))?: +(\S.*)$")
_DRAWN = re.compile(r"\S {3,}\S")  # a table or a picture made of text
_ITEM = re.compile(r"(?:[-*+]|\d+[.)]|[a-z]\))\s+")
_CODE = re.compile(r"``?[^`]+``?")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)[.!?][\"')\]*_]*\s+(?=[^a-z])")
_DIRECTIVE = re.compile(r"#\s*(!|type:|noqa|ruff:|fmt:|mypy:|pragma|-\*-)")


@dataclass(frozen=True)
class Finding:
    """A place where the prose breaks a rule."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Block:
    """Lines that belong together: a paragraph, an item of a list, a cell of a table."""

    line: int
    text: str


@dataclass(frozen=True)
class Entry:
    """The description of one argument or attribute, with the words of its signature."""

    path: str
    line: int
    name: str
    text: str
    signature: frozenset[str]


def words(text: str) -> list[str]:
    """The words of a text; code counts as one word, and a link as the words of its text."""
    plain = _CODE.sub("code", _LINK.sub(r"\1", text))
    return [word for word in plain.split() if re.search(r"\w", word)]


def sentences(text: str) -> list[str]:
    """The sentences of a block. Periods inside code end no sentence."""
    codes: list[str] = []

    def hide(match: re.Match[str]) -> str:
        codes.append(match[0])
        return f"\0{len(codes) - 1}\0"

    hidden = _CODE.sub(hide, text)
    marked = _END.sub(lambda end: f"{end[0].rstrip()}\1", hidden)
    return [re.sub(r"\0(\d+)\0", lambda m: codes[int(m[1])], part) for part in marked.split("\1")]


def prose_blocks(text: str, first_line: int = 1) -> Iterator[Block]:
    """The blocks of a docstring or document, without code, headings of sections and pictures."""
    gathered: list[str] = []
    start = first_line
    fence = ""
    code_indent: int | None = None
    after_doctest = False

    def flush() -> Iterator[Block]:
        if gathered:
            yield Block(start, " ".join(gathered))
            gathered.clear()

    for number, raw in enumerate(text.splitlines(), first_line):
        line = raw.strip()
        indent = len(raw) - len(raw.lstrip())
        if fence or line.startswith(("```", "~~~")):
            yield from flush()
            fence = "" if fence and line.startswith(fence) else fence or line[:3]
            continue
        if code_indent is not None and line and indent <= code_indent:
            code_indent = None
        if not line:
            yield from flush()
            after_doctest = False
            continue
        if line.startswith(">>>"):
            after_doctest = True
        is_code = after_doctest or code_indent is not None or _DRAWN.search(line)
        if is_code or _SECTION.match(line) or line.startswith(("#", "<!--")):
            yield from flush()
            continue
        if line.startswith("|"):
            yield from flush()
            for cell in line.strip("|").split("|"):
                yield Block(number, cell.strip())
            continue
        if _ITEM.match(line) or _ENTRY.match(line):
            yield from flush()
        if not gathered:
            start = number
        item = _ITEM.match(line)
        gathered.append(line[item.end() :] if item else line)
        if line.endswith("::"):
            code_indent = indent
            yield from flush()
    yield from flush()


def comment_blocks(source: str) -> Iterator[Block]:
    """The comments of a module. Consecutive lines that hold only a comment are one block."""
    gathered: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line, column = token.start
        whole = not token.line[:column].strip()
        if gathered and (line != last + 1 or not whole):
            yield from prose_blocks("\n".join(gathered), start)
            gathered = []
        if not gathered:
            start = line
        gathered.append(token.string.lstrip("#:").removeprefix(" "))
        last = line if whole else 0
    if gathered:
        yield from prose_blocks("\n".join(gathered), start)


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[Documented, str, int]]:
    """Everything that has a docstring, with the docstring and the number of its first line."""
    for node in ast.walk(tree):
        if isinstance(node, Documented):
            text = ast.get_docstring(node, clean=True)
            if text:
                yield node, text, node.body[0].lineno


def identifier_words(text: str) -> set[str]:
    """The words that identifiers are made of, in lower case and without a plural s."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)
    return {part.lower().rstrip("s") for part in parts}


def own_words(node: Documented, name: str) -> frozenset[str]:
    """Words of the signature of one argument or field: its name, its type, and its owner."""
    annotations: dict[str, ast.expr | None] = {}
    if isinstance(node, ast.ClassDef):
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                annotations[field.target.id] = field.annotation
    elif not isinstance(node, ast.Module):
        args = node.args
        both = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        annotations = {arg.arg: arg.annotation for arg in both if arg is not None}
    annotation = annotations.get(name.lstrip("*"))
    owner = "" if isinstance(node, ast.Module) else node.name
    return frozenset(identifier_words(f"{owner} {name} {ast.unparse(annotation) if annotation else ''}"))


def signature_words(node: Documented) -> frozenset[str]:
    """The words of a whole signature."""
    if isinstance(node, ast.Module):
        return frozenset()
    if isinstance(node, ast.ClassDef):
        parts = [ast.unparse(n) for n in node.body if isinstance(n, ast.AnnAssign)]
    else:
        parts = [ast.unparse(node.args), ast.unparse(node.returns) if node.returns else ""]
    return frozenset(identifier_words(" ".join([node.name, *parts])))


def entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Line offset, name and description of everything below `Args:` and `Attributes:`."""
    lines = text.splitlines()
    inside, indent = False, 0
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(lines):
        section = _SECTION.match(line.strip())
        if section:
            inside, indent = section[1] in ("Args", "Attributes"), 0
        elif inside and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            match = _ENTRY.match(line.strip())
            if match and depth == indent:
                found.append((number, match[1], match[2]))
            elif found and depth > indent:
                found[-1] = (*found[-1][:2], f"{found[-1][2]} {line.strip()}")
            else:
                inside = False
    yield from found


def says_nothing_new(text: str, signature: frozenset[str]) -> bool:
    """Whether a text has no word that the signature lacks."""
    own = {word.lower().strip("s") for word in re.findall(r"[A-Za-z]+|\d+", text)}
    own -= {word.strip("s") for word in EMPTY_WORDS}
    plain = {word.strip("s") for word in signature}
    return own <= plain and "`" not in text


def check_text(path: str, blocks: Iterator[Block], limit: int) -> Iterator[Finding]:
    """Find sentences that are longer than the limit, or have a habit."""
    for block in blocks:
        for sentence in sentences(block.text):
            count = len(words(sentence))
            if count > limit:
                yield Finding(path, block.line, "long-sentence", f"{count} words: {sentence}")
            for habit in _HABITS.findall(_CODE.sub("code", sentence)):
                yield Finding(path, block.line, HABIT, f"{habit}: {sentence}")


def check_module(path: str, source: str, limit: int) -> tuple[list[Finding], list[Entry]]:
    """Findings in one module, and its entries, which are compared with those of other modules."""
    found = list(check_text(path, comment_blocks(source), limit))
    listed: list[Entry] = []
    for node, text, line in documented(ast.parse(source)):
        found.extend(check_text(path, prose_blocks(text, line), limit))
        opening = text.splitlines()[0]
        if _RIDDLE.match(opening):
            found.append(Finding(path, line, HABIT, f"opens with a question word: {opening}"))
        for offset, name, description in entries(text):
            listed.append(Entry(path, line + offset, name, description, own_words(node, name)))
        private = not isinstance(node, ast.Module) and node.name.startswith("_")
        if private and len(text.splitlines()) == 1 and says_nothing_new(text, signature_words(node)):
            found.append(Finding(path, line, "repeats-signature", text))
    for entry in listed:
        if says_nothing_new(entry.text, entry.signature):
            found.append(Finding(path, entry.line, "repeats-signature", f"{entry.name}: {entry.text}"))
    return found, listed


def repeated(listed: Sequence[Entry]) -> Iterator[Finding]:
    """Find entries that are in too many docstrings."""
    places: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in listed:
        places[entry.name, entry.text].append(entry)
    for (name, text), same in places.items():
        if len(same) > REPEATS and len(words(text)) < USEFUL and not _UNIT.search(text):
            for entry in same:
                found = f"{len(same)} times: {name}: {text}"
                yield Finding(entry.path, entry.line, "repeated-argument", found)


def check(root: Path, paths: Sequence[str], limit: int) -> list[Finding]:
    """All findings in these files.

    Args:
        root: The folder that the paths are relative to.
        paths: Python modules and Markdown documents.
        limit: Maximum number of words in a sentence.
    """
    found: list[Finding] = []
    listed: list[Entry] = []
    for path in paths:
        text = (root / path).read_text(encoding="utf-8")
        if path.endswith(".md"):
            found.extend(check_text(path, prose_blocks(text), limit))
        else:
            here, entries_here = check_module(path, text, limit)
            found.extend(here)
            listed.extend(entries_here)
    found.extend(repeated(listed))
    return sorted(found, key=lambda f: (f.path, f.line))


def project_files(root: Path) -> list[str]:
    """Modules and documents that are under version control, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted({path for path in listed.splitlines() if (root / path).is_file()})


def counts_by_folder(found: Sequence[Finding]) -> str:
    """A table of the number of findings by rule and folder."""
    tables: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for finding in found:
        tables[str(Path(finding.path).parent)][finding.rule] += 1
        tables["all"][finding.rule] += 1
    lines = [f"{'':45}" + "".join(f"{rule:>20}" for rule in RULES)]
    for folder in [*sorted(set(tables) - {"all"}), "all"]:
        lines.append(f"{folder:45}" + "".join(f"{tables[folder][rule]:>20}" for rule in RULES))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check as a program; the exit code is 1 if `--strict` finds a problem."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("within", nargs="*", help="files or folders whose findings are listed")
    parser.add_argument("--limit", type=int, default=LIMIT, help=f"words per sentence (default: {LIMIT})")
    parser.add_argument("--strict", action="store_true", help="fail on findings outside the exempt files")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[1]
    found = check(root, project_files(root), options.limit)
    if options.strict:
        habits = [f for f in found if f.rule == HABIT]
        others = [f for f in found if f.rule != HABIT]
        problems = [
            *strict_problems(others, not_clean_yet(root)),
            *strict_problems(habits, not_clean_yet(root, "habits_not_clean_yet")),
        ]
        print("\n".join(problems) or "no findings outside the exempt files")
        return 1 if problems else 0
    if options.within:
        shown = [f for f in found if any(is_within(f.path, name.rstrip("/")) for name in options.within)]
        print("\n".join(map(str, shown)) or "no findings")
        return 0
    print(counts_by_folder(found))
    return 0


def not_clean_yet(root: Path, listed_as: str = "not_clean_yet") -> list[str]:
    """The files and folders whose findings `--strict` ignores."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return [str(name) for name in settings["tool"]["check_prose"][listed_as]]


def strict_problems(found: Sequence[Finding], not_clean: Sequence[str]) -> list[str]:
    """Findings outside the files that are not clean yet, and listed names that are clean."""
    outside = [f for f in found if not any(is_within(f.path, name) for name in not_clean)]
    clean = [name for name in not_clean if not any(is_within(f.path, name) for f in found)]
    return [
        *map(str, outside),
        *(f"{name} is clean: take it off the list in pyproject.toml" for name in clean),
    ]


def is_within(path: str, folder: str) -> bool:
    """Whether a path is this file, or lies in this folder."""
    return path == folder or path.startswith(f"{folder}/") or folder == "."


if __name__ == "__main__":
    sys.exit(main())
