# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pack this code into one file that Python can run at boot, when Ansible's copy of it is gone.

The sources are taken from the loaded modules, wherever these came from (Ansible's zip, a collection, a checkout),
so that the code that runs at boot cannot be another version. The bytes depend only on the sources, but for bytecode,
which is for this Python alone; others read the sources beside it.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import marshal
import re
import zipfile

PREFIX = "ansible_collections.sailloft.fleet.plugins.module_utils."
# One import statement of this collection's library: the package or module, and the names in parentheses or in the line.
# Python's parser would take ten times as long as all else here.
IMPORT = re.compile(rf"^[ \t]*from ({re.escape(PREFIX.rstrip('.'))}[\w.]*) import (?:\(([^)]*)\)|([^(#\n]+))", re.M)
# The earliest time that a zip file can hold, so that the bytes do not depend on the clock.
EPOCH = (1980, 1, 1, 0, 0, 0)
# PEP 552: bytecode that names its source by a hash and is not compared with it; UNCHECKED follows the magic number.
UNCHECKED, HEADER_BYTES = (1).to_bytes(4, "little"), 16


def build(start: str, with_bytecode: bool = False) -> bytes:
    """Return a zip file that calls ``main`` of the module ``start`` with the arguments.

    It contains this module, all modules of the collection that it imports, and a ``__main__``. The caller must import
    ``start`` itself, because Ansible copies only modules that it sees imported. Bytecode halves the time of a program
    that runs often, because Python keeps none of a zip file.
    """
    files = {"__main__.py": f"import sys\n\nfrom {start} import main\n\nsys.exit(main(sys.argv[1:]))\n"}
    for name in closure(start):
        parts = name.split(".")
        for depth in range(1, len(parts)):
            files["/".join([*parts[:depth], "__init__.py"])] = ""
        files["/".join(parts) + ".py"] = source(name)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as bundle:
        for path in sorted(files):
            bundle.writestr(zipfile.ZipInfo(path, EPOCH), files[path])
            if with_bytecode:
                bundle.writestr(zipfile.ZipInfo(f"{path}c", EPOCH), _bytecode(path, files[path]))
    return archive.getvalue()


def is_same(archive: bytes, other_archive: bytes) -> bool:
    """Return True for equal files, and for zip files of the same sources with bytecode for the same Python.

    The bytecode itself may differ: marshal writes references as the running process has them.
    """
    return archive == other_archive or _identity(archive) == _identity(other_archive)


def _identity(archive: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as bundle:
            contents = {name: bundle.read(name) for name in bundle.namelist()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError):
        return {"": archive}
    return {name: data[:HEADER_BYTES] if name.endswith(".pyc") else data for name, data in contents.items()}


def _bytecode(path: str, text: str) -> bytes:
    source_hash = importlib.util.source_hash(text.encode())
    code = compile(text, path, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + UNCHECKED + source_hash + marshal.dumps(code)


def closure(start: str) -> list[str]:
    """Return the names of all modules of this collection that ``start`` imports, itself included, sorted."""
    modules = {start}
    unread = [start]
    while unread:
        for package, lines, line in IMPORT.findall(source(unread.pop())):
            for name in _modules(package, re.sub(r"#.*", "", lines or line)):
                if name not in modules:
                    modules.add(name)
                    unread.append(name)
    return sorted(modules)


def source(name: str) -> str:
    """Return the text of a module that can be imported."""
    return inspect.getsource(importlib.import_module(name))


def _modules(package: str, names: str) -> list[str]:
    """Return the modules of ``from PACKAGE import module`` or ``from MODULE import name``: packages have a path."""
    if hasattr(importlib.import_module(package), "__path__"):
        return [f"{package}.{name.split()[0]}" for name in names.split(",") if name.strip()]
    return [package]
