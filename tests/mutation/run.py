# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Change files of the library one small mistake at a time and print those that no test notices: run.py FILE...

A tool for authors of tests. A seed draws the mistakes at random: a run can be repeated, and another seed draws other
mistakes. Each mistake is made in a copy of the checkout, where tests run until one fails: first those named after the
file, then those of the directory that mirrors the file's. A mutant *survives* if no test fails or runs out of time or
memory: a test is missing, the code is not needed, or the mutant behaves like the original.

Tools like mutmut and cosmic-ray also mutate annotations, which are never evaluated here, and cannot draw a sample.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Union

import pytest

# Each test run is a fork of this process, and has it already.
importlib.import_module("hypothesis")

ROOT = Path(__file__).resolve().parents[2]
UNIT = Path("tests/unit")
TEST_TIMEOUT_S = 20  # the slowest unit test takes a few seconds
# A mutant that loops in an example of hypothesis outlives its test's timeout: the search for a smaller example
# repeats it. So the tests of a mutant together have a limit: this one, plus several times what they take without it.
LEAST_TIMEOUT_S, TIMES_SLOWER = 60, 4
MEMORY_BYTES = 4 << 30  # the address space of a process; the unit tests pass with 2 GiB, those that start QEMU with 3
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
    """One mistake: new text between two positions of a file."""

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
    # ast counts bytes of UTF-8, and so does the replacement.
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
        # mypy already checks that no code assigns to a frozen dataclass.
        for decorator in getattr(node, "decorator_list", []):
            skipped |= {id(part) for part in ast.walk(decorator)}
        # Annotations are not evaluated (from __future__ import annotations), and docstrings have no effect.
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


def apply(mutant: Mutant, root: Path, number: int) -> None:
    """Make the mistake in the copy.

    Python reuses bytecode if the time in whole seconds and the size match the source, so each mutant gets its own time.
    """
    target = root / mutant.path
    before = target.read_bytes()
    target.write_bytes(before[: mutant.begin] + mutant.text.encode() + before[mutant.end :])
    os.utime(target, (number, number))


def compiles(mutant: Mutant, text: bytes) -> bool:
    """Return whether Python can read the mutated file."""
    try:
        ast.parse(text[: mutant.begin] + mutant.text.encode() + text[mutant.end :])
    except SyntaxError:
        return False
    return True


def stages(root: Path, path: Path) -> list[list[str]]:
    """Return the tests of a file in the order in which they run, first those named after it."""
    mirror = UNIT.joinpath(*(part for part in path.parent.parts[1:] if part != "module_utils"))
    tests = [str(test.relative_to(root)) for test in sorted((root / mirror).rglob("test_*.py"))]
    named = [test for test in tests if Path(test).stem.startswith(f"test_{path.stem}")]
    return [stage for stage in (named, [test for test in tests if test not in named]) if stage]


def fails(root: Path, tests: list[str], limit_s: float = math.inf) -> bool:
    """Return whether one of the tests fails in the copy, or whether they take longer than ``limit_s`` seconds.

    They run in a fork of this process, which has already imported pytest and hypothesis.
    """
    options = [
        "-x",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        f"--timeout={TEST_TIMEOUT_S}",
        "--hypothesis-profile=mutation",
        "--hypothesis-seed=1",
    ]
    process = os.fork()
    if process == 0:
        status = int(pytest.ExitCode.INTERNAL_ERROR)
        # Whatever ends the child, even a lack of memory, it must not go on as the parent, which would remove the copy.
        try:
            os.setsid()
            os.chdir(root)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            status = int(pytest.main([*options, *tests]))
        finally:
            os._exit(status)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        time.sleep(0.02)
    # The session's process group contains every process that a test started and did not end.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if not ended:
        os.waitpid(process, 0)
        return True
    return os.waitstatus_to_exitcode(status) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main() -> int:
    """Draw mutants and test them; the exit status is 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20, help="mutants to draw")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="file or directory below plugins/")
    options = parser.parse_args()
    # Python would use the bytecode of another mutant with the same size and second.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="sailloft-mutation-") as temporary:
        root = Path(temporary) / "checkout"
        tracked = [Path(name) for name in listed.split("\0") if name]
        for name in tracked:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
        possible = [
            mutant
            for name in tracked
            if name.suffix == ".py" and any(name.is_relative_to(path) for path in options.paths)
            for mutant in mutants(name, (root / name).read_text())
        ]
        drawn = random.Random(options.seed).sample(possible, min(options.count, len(possible)))
        needed = sorted({test for mutant in drawn for stage in stages(root, mutant.path) for test in stage})
        if not needed:
            parser.error("no tests for these files")
        start = time.monotonic()
        if fails(root, needed):
            sys.exit(f"tests fail without any mutant; run pytest {' '.join(needed)}")
        limit_s = LEAST_TIMEOUT_S + TIMES_SLOWER * (time.monotonic() - start)
        survived = 0
        for number, mutant in enumerate(drawn, 1):
            original = (root / mutant.path).read_bytes()
            if not compiles(mutant, original):
                continue
            apply(mutant, root, number)
            killed = any(fails(root, tests, limit_s) for tests in stages(root, mutant.path))
            (root / mutant.path).write_bytes(original)
            survived += not killed
            print(f"{number}/{len(drawn)} {'killed' if killed else 'SURVIVED'} {mutant}", flush=True)
    print(f"{survived} survived, of {len(possible)} that could be drawn")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
