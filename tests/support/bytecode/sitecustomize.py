# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cache the bytecode of everything that Ansible compiles in its processes; Python runs this file at each start.

Ansible sends a module as an archive, for which Python caches no bytecode: each run compiles the same sources again,
which takes a third of the processor time of ``ping``. Its loader of collections compiles their plugins in each process,
too. The processes exit after seconds, so objects that are never collected cost them less than garbage collections.

Nothing is imported from __future__ here, because compile() would inherit it.
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
    """Compile a module, or read the bytecode that an earlier process compiled from the same source."""
    data = source.encode() if isinstance(source, str) else source
    # The file name is SipHash with the bytecode's version as its key, as in hash-based .pyc files (PEP 552).
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
    """Cache modules of collections. Other calls, and calls whose flags request a syntax tree, get compile() itself."""
    is_module = isinstance(source, (str, bytes)) and mode == "exec" and not more and not options.get("flags")
    is_kept = is_module and options.get("dont_inherit") and "/ansible_collections/" in str(filename)
    return (kept if is_kept else built_in)(source, filename, mode, *more, **options)


zipimport.compile = kept
builtins.compile = compiled
gc.set_threshold(100_000, 50, 100)
