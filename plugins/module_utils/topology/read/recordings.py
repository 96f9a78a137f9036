# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Recordings of hosts: one reader for all supported forms, and the writer of the project's own form.

| form | what it is known by | read by |
| --- | --- | --- |
| a directory | holds ``sys``, or one directory that does | ``sysfs.read_host`` |
| a tar of one, plain or compressed | its first bytes | unpacked, then the same |
| hwloc XML (``lstopo machine.xml``) | root element ``topology`` | ``hwloc.read_hwloc`` |
| NCCL XML (``NCCL_TOPO_DUMP_FILE``) | root element ``system`` | ``nccl.read_nccl`` |
| JSON of the project | a topology, alone or under the key ``topology`` | ``read_saved`` |
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tempfile
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.anonymous import anonymous
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read import archives
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.hwloc import read_hwloc
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import read_nccl
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host

# The largest known text has 140 KB: hwloc XML of a server with 8 GPUs.
LIMIT_TEXT_BYTES = 64 << 20
FORMS = "a directory with sys and proc, a tar of one, hwloc XML, NCCL XML, or JSON of host_topology_info"
# Neither a file nor a directory: reading it could block forever, or change a device.
SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
# The first bytes of forms that are not read, and what to do: APPNOTE.TXT of PKWARE, RFC 8878, byte order marks.
FOREIGN = {
    b"PK\x03\x04": ("a zip archive", "make a tar of it (plain, gzip, bzip2 or xz)"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "compress it with gzip, bzip2 or xz instead"),
    b"\xff\xfe": ("text in UTF-16", "save it in UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "save it in UTF-8"),
}
# XML 1.0, Char: the only control characters that a text may have are tab and line ends.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
WIDTH = 118
# Fields of a function that are written even if they are null: the model has no default for them.
ALWAYS = ("parent", "port_type")


def read_recording(path: str) -> Host:
    """Return the host that is recorded at ``path``; the form is detected by content, not by name.

    Raises TopologyError naming the path, the detected form, the cause and the next step.
    """
    if "\0" in path:
        raise TopologyError(
            f"{path!r} cannot be read: a path cannot contain a NUL character", f"a recording is {FORMS}"
        )
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return read_host(_tree(path, path))
        if not stat.S_ISREG(mode):
            raise TopologyError(f"{path} is {SPECIAL.get(stat.S_IFMT(mode), 'not a file')}", f"a recording is {FORMS}")
        with open(path, "rb") as stream:
            head = stream.read(archives.HEAD_BYTES)
            if not archives.is_archive(head):
                return _text(path, head + stream.read(LIMIT_TEXT_BYTES + 1))
    except UnicodeEncodeError as error:
        raise TopologyError(
            f"{path!r} cannot be read: it contains an invalid character", "give another path"
        ) from error
    except OSError as error:
        raise TopologyError(f"{path} cannot be read: {error.strerror}", f"a recording is {FORMS}") from error
    with tempfile.TemporaryDirectory() as folder:
        archives.unpack(path, folder)
        try:
            return read_host(_tree(folder, path))
        except TopologyError as error:
            # A file of the tar is named by its path in the tar, not by the place where it was unpacked.
            raise TopologyError(error.cause.replace(folder, path), error.remedy) from error


def write_recording(host: Host) -> str:
    """Return the host as JSON in the project's own format, without what could identify it: see ``anonymous``.

    The amount of free memory is left out too, so that the same host gives the same bytes. Everything else is read back
    as it is in ``anonymous(host)``.
    """
    nodes = [replace(node, memory_free_bytes=None) for node in host.numa_nodes]
    return render(slim(anonymous(replace(host, numa_nodes=nodes)).to_dict())) + "\n"


def slim(topology: dict[str, Any]) -> dict[str, Any]:
    """Remove empty notes, unknown sockets and the empty fields of functions; reading the result gives the same host."""
    functions = [
        {key: value for key, value in function.items() if key in ALWAYS or value not in (None, [], {})}
        for function in topology["functions"]
    ]
    nodes = [
        {key: value for key, value in node.items() if key != "socket" or value is not None}
        for node in topology["numa_nodes"]
    ]
    slimmed = {**topology, "numa_nodes": nodes, "functions": functions}
    return {key: value for key, value in slimmed.items() if key != "notes" or value}


def render(value: Any, indent: int = 0) -> str:
    """Return JSON in which each value that fits is on one line, so that people can read and compare it."""
    flat = json.dumps(value)
    if len(flat) + indent <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + render(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    rows: list[str] = []
    row = ""
    for key, item in value.items():
        text = f"{json.dumps(key)}: {render(item, indent + 1)}"
        if row and "\n" not in row + text and len(inner) + len(row) + 2 + len(text) + 1 <= WIDTH:
            row += ", " + text
        else:
            rows += [row] if row else []
            row = text
    return "{\n" + ",\n".join(inner + row for row in [*rows, row]) + "\n" + " " * indent + "}"


def _tree(folder: str, path: str) -> str:
    """Return the directory that holds ``sys``: ``folder``, or the only one in it that does."""
    subfolders = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    trees = [place for place in [folder, *subfolders] if os.path.isdir(os.path.join(place, "sys"))]
    if folder in trees or len(trees) == 1:
        return trees[0]
    contents = "several recordings" if trees else "no sys"
    raise TopologyError(
        f"{path} holds {contents}", "a recording is a directory, or a tar of one, with sys and proc in it"
    )


def _text(path: str, content: bytes) -> Host:
    if len(content) > LIMIT_TEXT_BYTES:
        raise TopologyError(
            f"{path} is more than {LIMIT_TEXT_BYTES >> 20} MiB: not a recording of a host", f"a recording is {FORMS}"
        )
    for magic, (form, remedy) in FOREIGN.items():
        if content.startswith(magic):
            raise TopologyError(f"{path} is {form}, which is not read", remedy)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TopologyError(f"{path} is not a recording: {error}", f"a recording is {FORMS}") from error
    # A copy may have NUL characters after its end.
    text = text.rstrip("\0")
    if not text.strip():
        raise TopologyError(f"{path} is empty", f"a recording is {FORMS}")
    control = CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        raise TopologyError(f"{path}, line {line}: the control character {control[0]!r}", f"a recording is {FORMS}")
    mark = text.lstrip()[:1]
    if mark == "<":
        return _named(path, "XML", _xml, text)
    if mark == "{":
        return _named(path, "JSON", _json, text)
    raise TopologyError(f"{path} is not a recording: it begins with {text.lstrip()[:20]!r}", f"a recording is {FORMS}")


def _named(path: str, taken_for: str, reader: Any, text: str) -> Host:
    try:
        return reader(text)
    except TopologyError as error:
        raise TopologyError(f"{path}, read as {taken_for}: {error.cause}", error.remedy) from error


def _xml(text: str) -> Host:
    if "<!ENTITY" in text:
        raise TopologyError("it declares entities, which no recording needs", "write it again with lstopo or NCCL")
    try:
        _event, root = next(ElementTree.iterparse(io.StringIO(text), events=("start",)))
    except (ElementTree.ParseError, StopIteration) as error:
        raise TopologyError(f"not XML, or cut short: {error}", "copy it again") from error
    if root.tag == "topology":
        return read_hwloc(text)
    if root.tag == "system":
        return read_nccl(text)
    raise TopologyError(f"its root element is <{root.tag}>", "that of hwloc XML is <topology>, of NCCL's <system>")


def _json(text: str) -> Host:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"not JSON, or cut short: {error}", "copy it again") from error
    return read_saved(data.get("topology", data))
