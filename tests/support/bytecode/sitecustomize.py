# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cache the bytecode of everything that Ansible compiles in its processes; Python runs this file at each start.

Ansible sends a module as an archive, for which Python caches no bytecode: each run compiles the same sources again,
which takes a third of the processor time of ``ping``. Its loader of collections compiles their plugins in each process,
too. Each run also parses all files that a module imports, to find those of its archive: a list of them is kept as long
as none of them changes. The processes exit after seconds, so objects that are never collected cost them less than
garbage collections.

Nothing is imported from __future__ here, because compile() would inherit it.
"""

import _imp
import builtins
import gc
import marshal
import os
import sys
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


class ArchivesAreKept:
    """Replace recursive_finder when Ansible's module with it is imported; it parses 50 files for ``ping``."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Return the module's own loader, followed by the replacement."""
        if name != "ansible.executor.module_common":
            return None
        import importlib.util

        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            keep_archives(module)

        spec.loader.exec_module = exec_module
        return spec


def keep_archives(common):
    """Let ``common``, which is ansible.executor.module_common, read the files of a module's archive from FOLDER."""
    import pickle

    parse = common.recursive_finder

    def place(source):
        origin = common.Origin.get_tag(source)
        return os.path.realpath(origin.path) if origin and origin.path else ""

    def age(path):
        try:
            status = os.stat(path)
        except FileNotFoundError:  # __init__.py of a package without this file
            return path, 0, 0
        return path, status.st_mtime_ns, status.st_size

    def find(name, module, data, archive, moment, extensions):
        file = place(data)
        key = _imp.source_hash(int.from_bytes(MAGIC_NUMBER, "little"), f"{module} {file}".encode()).hex()
        try:
            with open(f"{FOLDER}/archive-{key}", "rb") as stream:
                metadata, ages, members = pickle.load(stream)
            if [age(path) for path, *_age in ages] == ages:
                for member, source in members:
                    archive.writestr(common._make_zinfo(member, moment, zf=archive), source)
                return metadata
        except FileNotFoundError:
            pass
        members, paths, write = [], [file], archive.writestr

        def record(member, source):
            # Without the tag of its origin, which is kept in paths; packages without a file are "".
            members.append((member.filename, source and b"".join([source])))
            paths.append(place(source))
            write(member, source)

        archive.writestr = record
        metadata = parse(name, module, data, archive, moment, extensions)
        archive.writestr = write
        new = f"{FOLDER}/archive-{key}.{os.getpid()}"
        with open(new, "wb") as stream:
            pickle.dump((metadata, [age(path) for path in paths if path], members), stream)
        os.replace(new, f"{FOLDER}/archive-{key}")
        return metadata

    common.recursive_finder = find


zipimport.compile = kept
builtins.compile = compiled
sys.meta_path.insert(0, ArchivesAreKept)
gc.set_threshold(100_000, 50, 100)
