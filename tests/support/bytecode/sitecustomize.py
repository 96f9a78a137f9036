# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keeps the bytecode of what Python imports from archives; Python reads this file when it starts.

Ansible sends a module as an archive, of which Python keeps no bytecode: each run compiles the same sources again, a
third of the processor time of ``ping``.
"""

from __future__ import annotations

import _imp
import marshal
import os
import zipimport
from _frozen_importlib_external import MAGIC_NUMBER

FOLDER = os.environ["SAILLOFT_BYTECODE"]


def kept(source, filename, mode, **options):
    """Compile, or read what an earlier process made of the same source."""
    # SipHash with the version of the bytecode as its key, as in hash-based .pyc files (PEP 552).
    name = _imp.source_hash(int.from_bytes(MAGIC_NUMBER, "little"), source).hex()
    path = f"{FOLDER}/{name}-{len(source)}"
    try:
        with open(path, "rb") as stream:
            code = marshal.load(stream)
        _imp._fix_co_filename(code, filename)
    except FileNotFoundError:
        code = compile(source, filename, mode, **options)
        new = f"{path}.{os.getpid()}"
        with open(new, "wb") as stream:
            marshal.dump(code, stream)
        os.replace(new, path)
    return code


# zipimport's own calls; others go on to the built-in function.
zipimport.compile = kept
