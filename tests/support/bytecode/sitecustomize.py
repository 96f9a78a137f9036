# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keeps the bytecode of what Ansible compiles in each of its processes; Python reads this file when it starts.

Ansible sends a module as an archive, of which Python keeps no bytecode: each run compiles the same sources again, a
third of the processor time of ``ping``. Its loader of collections compiles their plugins in each process, too. The
processes end after seconds: objects that are never collected cost them less than the search for them.

Nothing is imported from __future__ here: compile() would inherit it.
"""

import _imp
import builtins
import gc
import marshal
import os
import zipimport
from _frozen_importlib_external import MAGIC_NUMBER

FOLDER = os.environ["SAILLOFT_BYTECODE"]
built_in = builtins.compile


def kept(source, filename, mode, **options):
    """Compile a module, or read what an earlier process made of the same source."""
    data = source.encode() if isinstance(source, str) else source
    # SipHash with the version of the bytecode as its key, as in hash-based .pyc files (PEP 552).
    name = _imp.source_hash(int.from_bytes(MAGIC_NUMBER, "little"), data).hex()
    path = f"{FOLDER}/{name}-{len(data)}"
    try:
        with open(path, "rb") as stream:
            code = marshal.load(stream)
        _imp._fix_co_filename(code, filename)
    except FileNotFoundError:
        code = built_in(source, filename, mode, **options)
        new = f"{path}.{os.getpid()}"
        with open(new, "wb") as stream:
            marshal.dump(code, stream)
        os.replace(new, path)
    return code


def compiled(source, filename, mode, *more, **options):
    """Keep modules of collections: compile() itself for all other calls, and where flags ask for a syntax tree."""
    is_module = isinstance(source, (str, bytes)) and mode == "exec" and not more and not options.get("flags")
    is_kept = is_module and options.get("dont_inherit") and "/ansible_collections/" in str(filename)
    return (kept if is_kept else built_in)(source, filename, mode, *more, **options)


zipimport.compile = kept
builtins.compile = compiled
gc.set_threshold(100_000, 50, 100)
