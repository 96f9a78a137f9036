# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Change the library one small mistake at a time and count how many the unit tests notice: run.py [--folder FOLDER] ...

The mistakes are drawn at random by a seed: a run can be repeated, and another seed finds others. Each is made in a copy
of the checkout, and the tests of its folder are run on it. A mutant is *killed* where a test fails or runs out of time,
else it *survives*: a test is missing, or the mutant is equivalent (it behaves as the original), which equivalent.txt
says by file, line's text and mistake, with the reason.

Tools like mutmut and cosmic-ray mutate annotations too, which are never evaluated here, and draw no sample by folder.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Union

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path("plugins/module_utils")
TIMEOUT_S = 600
Placed = Union[ast.expr, ast.stmt]
COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
ARITHMETIC = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
}


@dataclass(frozen=True)
class Mutant:
    """One mistake: the text between two positions of a file becomes another."""

    path: Path  # relative to the checkout
    begin: int
    end: int
    text: str
    line: int
    source: str  # the line, without its indentation

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.source!r}: -> {self.text!r}"


def mutants(path: Path, text: str) -> Iterator[Mutant]:
    """Yield every mistake that can be made in a file, in the order of its text."""
    lines = text.splitlines(keepends=True)
    # ast counts in bytes of UTF-8; so does the replacement.
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))

    def at(node: Placed, new: str, begin: int | None = None, end: int | None = None) -> Mutant:
        first = begin_of(node) if begin is None else begin
        last = end_of(node) if end is None else end
        return Mutant(path, first, last, new, node.lineno, lines[node.lineno - 1].strip())

    def end_of(node: Placed) -> int:
        return starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def begin_of(node: Placed) -> int:
        return starts[node.lineno - 1] + node.col_offset

    tree = ast.parse(text)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        # No code assigns to a dataclass that is frozen: mypy says so.
        for decorator in getattr(node, "decorator_list", []):
            skipped |= {id(part) for part in ast.walk(decorator)}
        # Annotations are text (from __future__ import annotations), docstrings are for people.
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                skipped |= {id(part) for part in ast.walk(getattr(node, name))}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            yield at(node, f" {COMPARISONS[type(node.ops[0])]} ", end_of(node.left), begin_of(node.comparators[0]))
        elif isinstance(node, ast.BoolOp):
            word = "or" if isinstance(node.op, ast.And) else "and"
            yield at(node, f" {word} ", end_of(node.values[0]), begin_of(node.values[1]))
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not isinstance(node.left, ast.Constant):
            yield at(node, f" {ARITHMETIC[type(node.op)]} ", end_of(node.left), begin_of(node.right))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield at(node, "", begin_of(node), begin_of(node.operand))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield at(node, str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield at(node, str(node.value + 1))
        elif (
            isinstance(node, ast.If)
            and len(node.body) == 1
            and isinstance(node.body[0], (ast.Raise, ast.Return, ast.Continue))
        ):
            yield at(node.test, "False")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield at(node, "pass")


def apply(mutant: Mutant, root: Path) -> bytes:
    """Make the mistake in the copy and return the file as it was."""
    target = root / mutant.path
    before = target.read_bytes()
    target.write_bytes(before[: mutant.begin] + mutant.text.encode() + before[mutant.end :])
    return before


def compiles(mutant: Mutant, text: bytes) -> bool:
    """Return whether Python can read the mutated file."""
    try:
        ast.parse(text[: mutant.begin] + mutant.text.encode() + text[mutant.end :])
    except SyntaxError:
        return False
    return True


def equivalent() -> dict[tuple[str, str, str], str]:
    """Return the reason of each mutant that behaves as the original, by path, line and mistake."""
    known = {}
    for line in (Path(__file__).with_name("equivalent.txt")).read_text().splitlines():
        if line and not line.startswith("#"):
            path, source, text, why = line.split(" | ")
            known[path, source, text] = why
    return known


def killed(root: Path, folder: str, processes: int) -> bool:
    """Return whether a test of the folder fails in the copy."""
    options = ["-q", "-x", "-n", str(processes), "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"tests/unit/{folder}"],
            cwd=root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    """Draw, mutate and count; the exit status is 1 where a folder's share is under the least one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=20, help="mutants a folder")
    parser.add_argument("--processes", type=int, default=2, help="of pytest; 0 is quickest for small folders")
    parser.add_argument(
        "--folder",
        action="append",
        help="of plugins/module_utils, as PACKAGE or PACKAGE/FOLDER; all packages by default",
    )
    parser.add_argument("--least-percent", type=int, default=85)
    options = parser.parse_args()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    packages = sorted(
        {Path(name).parts[2] for name in tracked.split("\0") if name.startswith(f"{LIBRARY}/") and name.endswith(".py")}
    )
    known, low = equivalent(), []
    with tempfile.TemporaryDirectory(prefix="sailloft-mutation-") as temporary:
        root = Path(temporary) / "checkout"
        for name in filter(None, tracked.split("\0")):
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
        for folder in options.folder or packages:
            drawn = random.Random(f"{options.seed}/{folder}")
            files = sorted((root / LIBRARY / folder).rglob("*.py"))
            if not files:
                parser.error(f"{folder} is no folder of {LIBRARY}")
            every = [mutant for file in files for mutant in mutants(file.relative_to(root), file.read_text())]
            chosen = drawn.sample(every, min(options.each, len(every)))
            if killed(root, folder, options.processes):
                sys.exit(f"{folder}: its tests fail without any mutant; run pytest tests/unit/{folder}")
            dead, counted = 0, 0
            for mutant in chosen:
                if not compiles(mutant, (root / mutant.path).read_bytes()):
                    continue
                if (str(mutant.path), mutant.source, mutant.text) in known:
                    continue
                before = apply(mutant, root)
                died = killed(root, folder, options.processes)
                (root / mutant.path).write_bytes(before)
                counted, dead = counted + 1, dead + died
                if not died:
                    print(f"survived  {mutant}", flush=True)
            share = 100 * dead // counted if counted else 100
            print(f"{folder}: {dead} of {counted} killed, {share}%, of {len(every)} that could be drawn", flush=True)
            if share < options.least_percent:
                low.append(folder)
    if low:
        print(f"under {options.least_percent}%: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
