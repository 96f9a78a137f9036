# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Change the library one small mistake at a time and count how many the unit tests notice: run.py [--directory PATH].

A seed draws the mistakes at random: a run can be repeated, and another seed draws other mistakes. Each mistake is made
in a copy of the checkout, and tests run on the copy until one fails: first those named after the file, then those of
its directory that import it directly or indirectly, then those of its package that do (for a module: those of every
module, then, as for a filter or action, those that contain its name). A mutant is *killed* if a test fails or runs out
of time or memory; otherwise it *survives*: a test is missing, or the mutant is equivalent (it behaves like the
original). equivalent.txt lists equivalent mutants by file, line's text and mistake, with the reason.

Tools like mutmut and cosmic-ray also mutate annotations, which are never evaluated here, and cannot draw a sample per
directory.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import math
import os
import random
import re
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
LIBRARY = Path("plugins/module_utils")
UNIT = Path("tests/unit")
COLLECTION = "ansible_collections.sailloft.fleet."
OTHERS = ("action", "filter", "modules")  # directories of plugins, each without subdirectories
EVERY_MODULE = UNIT / "modules/test_every_module.py"
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

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the mutant's key in equivalent.txt, without the line number, which changes."""
        return str(self.path), self.source, self.text

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


def apply(mutant: Mutant, root: Path, number: int) -> bytes:
    """Make the mistake in the copy and return the file as it was.

    Python reuses bytecode if the time in whole seconds and the size match the source, so each mutant gets its own time.
    """
    target = root / mutant.path
    before = target.read_bytes()
    target.write_bytes(before[: mutant.begin] + mutant.text.encode() + before[mutant.end :])
    os.utime(target, (number, number))
    return before


def compiles(mutant: Mutant, text: bytes) -> bool:
    """Return whether Python can read the mutated file."""
    try:
        ast.parse(text[: mutant.begin] + mutant.text.encode() + text[mutant.end :])
    except SyntaxError:
        return False
    return True


def equivalent() -> dict[tuple[str, str, str], str]:
    """Return the reason for each mutant that behaves like the original, by path, line and mistake."""
    known = {}
    for line in (Path(__file__).with_name("equivalent.txt")).read_text().splitlines():
        if line and not line.startswith("#"):
            path, source, text, why = line.split(" | ")
            known[path, source, text] = why
    return known


def leads(root: Path) -> dict[Path, set[Path]]:
    """Return for each test the files that its imports and those of its conftest.py reach, directly or indirectly."""
    files = [path for folder in ("plugins", "tests/support", UNIT) for path in (root / folder).rglob("*.py")]
    by_name = {
        path.stem
        if "support" in path.parts
        else COLLECTION + ".".join(path.relative_to(root).with_suffix("").parts): path
        for path in files
    }
    direct: dict[Path, set[Path]] = {}
    for path in files:
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        direct[path] = {by_name[name] for name in names if name in by_name}
    found = {}
    for path in files:
        if path.name.startswith("test_"):
            ahead = [path, *(each / "conftest.py" for each in path.parents if each / "conftest.py" in direct)]
            there: set[Path] = set()
            while ahead:
                new = direct[ahead.pop()] - there
                there |= new
                ahead += new
            found[path.relative_to(root)] = {each.relative_to(root) for each in there}
    return found


def stages(tests: dict[Path, set[Path]], root: Path, path: Path) -> Iterator[list[str]]:
    """Yield the tests of a file in the order in which they run, first those most likely to notice a mistake."""
    if path.parts[1] in OTHERS:
        name = re.compile(rf"\b{path.stem}\b")
        yield [str(EVERY_MODULE)] if path.parts[1] == "modules" else []
        yield [str(test) for test in sorted(tests) if name.search((root / test).read_text())]
        return
    mirror = UNIT / path.relative_to(LIBRARY).parent
    named = re.compile(rf"test_{path.stem}(_\w+)?\.py")
    package = sorted(test for test in tests if test.is_relative_to(Path(*mirror.parts[:3])))
    yield [str(test) for test in package if test.parent == mirror and named.fullmatch(test.name)]
    yield [str(test) for test in package if test.is_relative_to(mirror) and path in tests[test]]
    yield [str(test) for test in package if path in tests[test]]


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


def killed(root: Path, staged: Iterator[list[str]], limit_s: float) -> bool:
    """Return whether a test fails in the copy, or whether a stage of them takes longer than ``limit_s`` seconds."""
    ran: set[str] = set()
    for tests in staged:
        new = [test for test in tests if test not in ran]
        if new and fails(root, new, limit_s):
            return True
        ran |= {*new}
    return False


def main() -> int:
    """Draw mutants, test them and count; the exit status is 1 if a directory's share is below --least-percent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=20, help="mutants a directory")
    parser.add_argument(
        "--directory",
        action="append",
        help=f"of {LIBRARY}, as PACKAGE or PACKAGE/DIRECTORY, or {', '.join(OTHERS)}; all packages by default",
    )
    parser.add_argument("--least-percent", type=int, default=85)
    options = parser.parse_args()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    packages = sorted(
        {Path(name).parts[2] for name in tracked.split("\0") if name.startswith(f"{LIBRARY}/") and name.endswith(".py")}
    )
    known, low = equivalent(), []
    # Python would use the bytecode of another mutant with the same size and second.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory(prefix="sailloft-mutation-") as temporary:
        root = Path(temporary) / "checkout"
        for name in filter(None, tracked.split("\0")):
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
        tests = leads(root)
        for folder in options.directory or packages:
            place = root / ("plugins" if folder in OTHERS else LIBRARY) / folder
            every = [
                mutant
                for file in sorted(place.rglob("*.py"))
                for mutant in mutants(file.relative_to(root), file.read_text())
            ]
            if not every:
                parser.error(f"{folder} is no directory of {LIBRARY}")
            random.Random(f"{options.seed}/{folder}").shuffle(every)
            chosen = every[: options.each]
            needed = sorted({test for mutant in chosen for stage in stages(tests, root, mutant.path) for test in stage})
            start = time.monotonic()
            if fails(root, needed):
                sys.exit(f"{folder}: its tests fail without any mutant; run pytest {' '.join(needed)}")
            limit_s = LEAST_TIMEOUT_S + TIMES_SLOWER * (time.monotonic() - start)
            dead, counted = 0, 0
            for number, mutant in enumerate(chosen, 1):
                original = root / mutant.path
                if not compiles(mutant, original.read_bytes()) or mutant.key in known:
                    continue
                before = apply(mutant, root, number)
                died = killed(root, stages(tests, root, mutant.path), limit_s)
                original.write_bytes(before)
                counted, dead = counted + 1, dead + died
                print(f"{folder} {number}/{len(chosen)} {'killed' if died else 'SURVIVED'} {mutant}", flush=True)
            share = 100 * dead // counted if counted else 100
            print(f"{folder}: {dead} of {counted} killed, {share}%, of {len(every)} that could be drawn", flush=True)
            if share < options.least_percent:
                low.append(folder)
    if low:
        print(f"under {options.least_percent}%: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
