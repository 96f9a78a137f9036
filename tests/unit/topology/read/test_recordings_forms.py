# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One reader recognises every form of a recording by its content; broken and hostile files are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import socket
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read import archives, recordings
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import (
    read_recording,
    write_recording,
)

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")
HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x1" nodeset="0x1">
<object type="NUMANode" os_index="0" cpuset="0x1" nodeset="0x1" local_memory="1024"/></object></topology>
"""
NCCL = '<system version="1"><cpu numaid="0" affinity="0000000f" arch="x86_64" vendor="GenuineIntel"/></system>\n'


@pytest.fixture
def built(machine):
    """A machine with a port and a GPU below it: its root directory, and the host that is read from it."""
    port = machine.pci("pci0000:10/0000:10:00.0", pci_class="60400")
    machine.pci(f"{port.partition('devices/')[2]}/0000:11:00.0", pci_class="30200")
    return machine.root, machine.read()


def packed(folder: Path, arcname: str = "host") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(folder, arcname=arcname)
    return stream.getvalue()


def written(tmp_path: Path, content: bytes | str, name: str = "no-name-that-says-it") -> str:
    path = tmp_path / "given" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def tar_of(*members: tuple[str, bytes, str]) -> bytes:
    """Return a tar of (name, type, link or content)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
            else:
                member.linkname = text
                archive.addfile(member)
    return stream.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["tar", "gz", "bz2", "xz"])
@pytest.mark.parametrize("arcname", ["host", "."])
def test_a_tar_is_read_as_the_directory_in_it(built, tmp_path, pack, arcname):
    root, host = built
    assert len(host.functions) == 2
    assert read_recording(written(tmp_path, pack(packed(root, arcname)))) == host


def test_a_recording_directory_is_read_directly_and_from_its_parent(built, tmp_path):
    root, host = built
    assert read_recording(str(root)) == host
    above = tmp_path / "above"
    above.mkdir()
    (above / "host").symlink_to(root)
    (above / "notes").mkdir()
    assert read_recording(str(above)) == host


def test_json_is_read_directly_and_under_the_topology_key(built, tmp_path):
    root, host = built
    text = write_recording(host)
    (node,) = host.numa_nodes
    known = replace(host, numa_nodes=[replace(node, memory_free_bytes=None)])
    assert read_recording(written(tmp_path, text)) == known
    # Values that vary on an unchanged host, such as free memory, do not change the recording.
    meminfo = root / "sys/devices/system/node/node0/meminfo"
    meminfo.write_text(meminfo.read_text().replace("512 kB", "511 kB"))
    assert read_recording(str(root)) != host
    assert write_recording(read_recording(str(root))) == text
    assert read_recording(written(tmp_path, json.dumps(host.to_dict()))) == host
    assert read_recording(written(tmp_path, json.dumps({"changed": False, "topology": host.to_dict()}))) == host


def test_xml_formats_are_distinguished_by_the_root_element(tmp_path):
    assert read_recording(written(tmp_path, "\ufeff\n" + HWLOC.partition("\n")[2])).source == "hwloc"
    assert read_recording(written(tmp_path, HWLOC)).numa_nodes[0].memory_bytes == 1024
    assert read_recording(written(tmp_path, NCCL)).source == "nccl"


@pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")
@pytest.mark.parametrize("name", ["aws-p4d-24xl", "aws-p5.48xl", "azure-ndv4", "azure-ndv5"])
def test_original_nccl_files_are_read(name):
    host = read_recording(str(Path(ORIGINALS or "") / "topology" / f"{name}-topo.xml"))
    # The file of p5 leaves classes and ids to NCCL, which looks them up in the guest.
    assert [function.kind for function in host.functions].count("gpu") == (0 if name == "aws-p5.48xl" else 8)


WHOLE = json.dumps({"format": "sailloft-topology/1", "numa_nodes": [], "root_complexes": [], "functions": []})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; a recording is a directory"),
        (" \n", "is empty; a recording is a directory"),
        (b"\0" * 9, "is empty; a recording is a directory"),
        (NCCL.replace("</system>", "\n\x01</system>"), ", line 2: the control character '\\x01'; a recording is"),
        (
            WHOLE.replace("}", ', "kernel_release": "\\ud800"}'),
            "kernel_release is '\\ud800', which contains an invalid",
        ),
        (
            WHOLE.replace("}", ', "kernel_arguments": ["a\\u0000"]}'),
            "kernel_arguments[0] is 'a\\x00', which contains an invalid",
        ),
        ("GPU0 GPU1\n", "begins with 'GPU0 GPU1\\n'; a recording is"),
        (b"PK\x03\x04\x14", "is a zip archive, which is not read; make a tar of it"),
        (b"\x28\xb5\x2f\xfd\x24", "is compressed with zstd"),
        ("{}".encode("utf-16"), "is text in UTF-16, which is not read; save it in UTF-8"),
        (
            gzip.compress(b' {"format": 1}', mtime=0),
            "is compressed JSON or XML, and only a tar may be compressed; decompress it",
        ),
        (b"\x7fELF\x02\xff", "is not a recording: 'utf-8'"),
        (WHOLE[:-20], "read as JSON: not JSON, or cut short"),
        ('{"a":' * 100_000, "read as JSON: not JSON, or cut short"),
        ("{}", "read as JSON: not a topology: its format is None"),
        ('{"topology": 3}', "read as JSON: not a topology: its format is 'int'"),
        (WHOLE.replace("/1", "/9"), "its format is 'sailloft-topology/9'"),
        (WHOLE.replace('"functions": []', '"functions": [{}]'), "read as JSON: not a complete topology"),
        (HWLOC[:-30], "read as XML: not XML"),
        ("<", "read as XML: not XML, or cut short"),
        ("<domain/>", "its root element is <domain>; that of hwloc XML is <topology>"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><topology>&b;</topology>', "it declares entities"),
        ("<topology version='1.0'/>", "is not hwloc XML 1.x, 2.x or 3.x of a machine; write it with lstopo"),
    ],
)
def test_an_invalid_recording_is_refused_with_its_path_and_the_next_step(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(TopologyError) as error:
        read_recording(path)
    assert str(error.value).startswith(path)
    assert message in str(error.value)


def test_nul_characters_after_the_end_are_ignored(built, tmp_path):
    _root, host = built
    assert read_recording(written(tmp_path, json.dumps(host.to_dict()) + "\n\0\0")) == host


def no_recording(path: object) -> str:
    with pytest.raises(TopologyError) as error:
        read_recording(str(path))
    return str(error.value)


def test_an_invalid_path_is_refused():
    assert no_recording("/tmp/a\0b") == (
        f"'/tmp/a\\x00b' cannot be read: a path cannot contain a NUL character; a recording is {recordings.FORMS}"
    )
    assert no_recording("/tmp/\ud800") == (
        "'/tmp/\\ud800' cannot be read: it contains an invalid character; give another path"
    )


def test_a_pipe_device_or_socket_is_refused_before_it_is_opened(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    assert no_recording(tmp_path / "pipe") == f"{tmp_path}/pipe is a pipe; a recording is {recordings.FORMS}"
    assert no_recording("/dev/zero") == f"/dev/zero is a device; a recording is {recordings.FORMS}"
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    assert no_recording("socket") == f"socket is a socket; a recording is {recordings.FORMS}"


def test_a_file_larger_than_the_limit_is_refused(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.write(b"{" + b" " * archives.HEAD_BYTES)
        stream.truncate(recordings.LIMIT_TEXT_BYTES + 1)
    assert no_recording(path) == (
        f"{path} is more than 64 MiB: not a recording of a host; a recording is {recordings.FORMS}"
    )


def test_a_missing_path_and_directories_with_no_or_two_recordings_are_refused(tmp_path):
    with raises(TopologyError, f"{tmp_path}/none", "No such file or directory"):
        read_recording(str(tmp_path / "none"))
    with pytest.raises(TopologyError, match="holds no sys"):
        read_recording(str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / name / "sys").mkdir(parents=True)
    with raises(TopologyError, tmp_path, "several recordings"):
        read_recording(str(tmp_path))


FILE, DIRECTORY, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../out", FILE, "x")],
        [("/tmp/out", FILE, "x")],
        [("sys/../../out", FILE, "x")],
        [("sys/link", LINK, "/etc")],
        [("sys/link", LINK, "../../etc")],
        # As text, this target is the tree's top; it is above the tree once the link "here" is followed.
        [("sys/here", LINK, "."), ("sys/up", LINK, "here/../..")],
        [("sys/here", LINK, "."), ("sys/here/here/here/up", LINK, "../../../..")],
        [("sys/link", LINK, "devices"), ("sys/link/file", FILE, "x")],
        [("sys/fifo", tarfile.FIFOTYPE, "")],
        [("sys/device", tarfile.CHRTYPE, "")],
        [("sys/hard", tarfile.LNKTYPE, "/etc/passwd")],
        [("sys/file", FILE, "x"), ("sys/file", FILE, "y")],
        [("sys/link", LINK, "file"), ("sys/link", FILE, "y")],
        [("sys", FILE, "x"), ("sys/file", FILE, "y")],
    ],
)
def test_a_tar_with_paths_outside_its_tree_or_invalid_members_is_refused(tmp_path, members):
    path = written(tmp_path, tar_of(*members))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TopologyError) as error:
        read_recording(path)
    assert str(error.value).startswith(path)
    assert "nothing in this tar is used" in str(error.value) or "cannot be unpacked" in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_relative_links_inside_the_tree_are_unpacked_as_links(tmp_path):
    archive = tar_of(("sys/a/b/file", FILE, "x"), ("sys/c/link", LINK, "../a/b"), ("sys/top", LINK, "."))
    folder = tmp_path / "folder"
    folder.mkdir()
    archives.unpack(written(tmp_path, archive), str(folder))
    assert (folder / "sys/c/link/file").read_text() == "x"
    assert os.readlink(folder / "sys/c/link") == "../a/b"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["tar", "gz", "bz2", "xz"])
def test_a_tar_truncated_at_any_point_is_refused(built, tmp_path, pack):
    whole = pack(packed(built[0]))
    # The last quarter of a plain tar may be only the padding of its last block.
    end = len(packed(built[0]).rstrip(b"\0")) if pack is bytes else len(whole)
    for cut in (end // 4, end // 2, end // 2 // 512 * 512, end - 1):
        path = written(tmp_path, whole[:cut])
        with pytest.raises(TopologyError) as error:
            read_recording(path)
        assert str(error.value).startswith(path)


@pytest.mark.parametrize("kept", [0, 256], ids=["before a file", "within its header"])
def test_a_tar_truncated_after_a_complete_file_is_refused(built, tmp_path, kept):
    root, host = built
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(root, arcname="host")
        start = archive.offset
        archive.add(root / "proc/cmdline", arcname="host/a-file-that-nobody-reads")
    assert read_recording(written(tmp_path, stream.getvalue())) == host
    with raises(TopologyError, "tar", "damaged"):
        read_recording(written(tmp_path, stream.getvalue()[: start + kept]))


def test_a_tar_with_a_damaged_header_is_refused(built, tmp_path):
    content = bytearray(packed(built[0]))
    content[len(content) // 2 // 512 * 512 : len(content) // 2 // 512 * 512 + 512] = b"\xff" * 512
    with pytest.raises(TopologyError, match="given"):
        read_recording(written(tmp_path, bytes(content)))


def test_the_size_and_number_of_files_in_a_tar_are_limited(built, tmp_path, monkeypatch):
    path = written(tmp_path, gzip.compress(packed(built[0])))
    monkeypatch.setattr(archives, "LIMIT_MEMBERS", 5)
    with pytest.raises(TopologyError, match="more than 5 files"):
        read_recording(path)
    monkeypatch.setattr(archives, "LIMIT_BYTES", 4096)
    with pytest.raises(TopologyError, match="more than 0 MiB when unpacked"):
        read_recording(path)


@pytest.mark.parametrize(
    "claimed",
    [
        {"GNU.sparse.size": str(1 << 30), "GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,3"},
        {"size": str(1 << 50)},
    ],
    ids=["a sparse file", "a size that nothing follows"],
)
def test_a_tar_member_with_an_excessive_declared_size_is_refused_before_reading(tmp_path, claimed):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("sys/file")
        member.size, member.pax_headers = 3, claimed
        archive.addfile(member, io.BytesIO(b"abc"))
    path = written(tmp_path, stream.getvalue())
    with raises(TopologyError, path, "256 MiB"):
        read_recording(path)


def test_a_sparse_file_is_refused_by_name(tmp_path):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("sys/file")
        member.size = 3
        member.pax_headers = {"GNU.sparse.size": "9", "GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,3"}
        archive.addfile(member, io.BytesIO(b"abc"))
    with raises(TopologyError, "sys/file", "sparse"):
        read_recording(written(tmp_path, stream.getvalue()))


def test_an_error_in_a_tar_names_the_path_in_the_tar(built, tmp_path):
    root, _host = built
    (root / "sys/devices/system/node/node0/cpulist").write_text("x\n")
    path = written(tmp_path, packed(root))
    with pytest.raises(TopologyError) as error:
        read_recording(path)
    assert str(error.value).startswith(f"{path}/host/sys/devices/system/node/node0/cpulist")


@pytest.mark.parametrize("less", [0, 1])
def test_a_text_of_as_many_bytes_as_the_limit_is_read(tmp_path, monkeypatch, less):
    text = NCCL + " " * 1000
    monkeypatch.setattr(recordings, "LIMIT_TEXT_BYTES", len(text) - less)
    if less:
        assert "is more than 0 MiB: not a recording of a host; " in no_recording(written(tmp_path, text))
    else:
        assert read_recording(written(tmp_path, text)).source == "nccl"


def test_the_line_of_a_control_character_is_counted_from_1(tmp_path):
    for text, line in (("\x01", 1), ("a\x0b\n", 1), ("\n\n a\x1f", 3)):
        path = written(tmp_path, text)
        character = next(one for one in text if one not in "\n a")
        assert no_recording(path) == (
            f"{path}, line {line}: the control character {character!r}; a recording is {recordings.FORMS}"
        )


def test_values_that_fit_are_on_one_line():
    assert recordings.WIDTH == 118
    fits = {"a": "x" * (118 - len('{"a": ""}'))}
    assert recordings.render(fits) == json.dumps(fits)
    assert recordings.render({"a": fits["a"] + "x"}) == f'{{\n "a": "{fits["a"]}x"\n}}'
    assert recordings.render([fits["a"], "b"]) == json.dumps([fits["a"], "b"])
    assert recordings.render([fits["a"], "bc"]) == f'[\n "{fits["a"]}",\n "bc"\n]'
    # With the indentation of one blank and the comma after it, a row of two values has 118 characters.
    two = {"a": "x" * 50, "b": "x" * 50, "c": 1}
    assert recordings.render(two) == f'{{\n "a": "{"x" * 50}", "b": "{"x" * 50}",\n "c": 1\n}}'
    two["b"] += "x"
    assert recordings.render(two) == f'{{\n "a": "{"x" * 50}",\n "b": "{"x" * 51}", "c": 1\n}}'
    assert recordings.render("x" * 200) == json.dumps("x" * 200)
    assert recordings.render({"a": [{"b": "x" * 112}]}) == f'{{\n "a": [\n  {{\n   "b": "{"x" * 112}"\n  }}\n ]\n}}'


def test_empty_fields_are_left_out_of_a_recording():
    function = {"parent": None, "port_type": None, "driver": None, "bars": [], "interfaces": {}, "config_bytes": 0}
    nodes = [{"id": 0, "socket": None}, {"id": 1, "socket": 0}]
    assert recordings.slim({"numa_nodes": nodes, "functions": [function], "notes": [], "source": "sysfs"}) == {
        "numa_nodes": [{"id": 0}, {"id": 1, "socket": 0}],
        "functions": [{"parent": None, "port_type": None, "config_bytes": 0}],
        "source": "sysfs",
    }
    noted = {"numa_nodes": [], "functions": [], "notes": ["a"]}
    assert recordings.slim(noted) == noted


@pytest.mark.parametrize("names", [["sys"], ["a/sys"], ["sys", "a/sys", "b/sys"]])
def test_the_directory_of_a_recording_holds_sys_or_one_that_does(tmp_path, names):
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    place = tmp_path if "sys" in names else tmp_path / "a"
    assert no_recording(tmp_path) == (
        f"{place}/sys/devices/system has no cpu or node directory: /sys is not mounted there; mount it"
    )
