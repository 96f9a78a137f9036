# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files below a root directory, and the messages about those that cannot be read."""

from __future__ import annotations

import os

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import LIMIT_CPUS, Files


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(b"12\xff\n\0\0")
    (tmp_path / "a/number").write_text(" -12\n")
    (tmp_path / "a/link").symlink_to("../b/c")
    (tmp_path / "a/absolute").symlink_to("/sys/x/../y")
    return Files(f"{tmp_path}/")


def refusal(call):
    with pytest.raises(TopologyError) as error:
        call()
    return str(error.value)


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_paths_are_below_the_root():
    assert Files("/").path("sys/a") == "/sys/a"
    assert Files("/copy/").path("sys/a") == "/copy/sys/a"
    assert Files("copy").path("sys/a") == "copy/sys/a"
    assert LIMIT_CPUS == 65536


def test_a_file_is_read_up_to_a_limit_without_zeros_at_its_end(files):
    before = open_descriptors()
    assert files.text("a/file") == "12\\xff\n"
    assert files.bytes_or_none("a/file", 100) == b"12\xff\n\0\0"
    assert [files.bytes_or_none("a/file", limit) for limit in (0, 1, 6)] == [b"", b"1", b"12\xff\n\0\0"]
    assert files.text_or_none("a/file", 1) == "1"
    assert open_descriptors() == before


def test_a_file_larger_than_a_read_is_read_completely(tmp_path):
    content = bytes(range(1, 251)) * 1000
    (tmp_path / "large").write_bytes(content)
    assert Files(str(tmp_path)).bytes_or_none("large", 1 << 22) == content
    assert Files(str(tmp_path)).bytes_or_none("large", 65537) == content[:65537]


def test_a_missing_file_or_a_directory_in_its_place_has_no_text(files):
    before = open_descriptors()
    for path in ("a/none", "a/file/none", "a"):
        assert files.text_or_none(path) is None
        assert files.open(path) is None
        assert refusal(lambda path=path: files.text(path)) == Mentions(files.path(path), "missing")
    assert open_descriptors() == before


def test_a_number_is_decimal(files):
    assert files.number("a/number") == -12
    assert refusal(lambda: files.number("a/file")) == Mentions(files.path("a/file"), r"'12\\xff'")


def test_names_are_sorted_and_those_of_a_missing_directory_are_none(files):
    assert files.names("a") == ["absolute", "file", "link", "number"]
    assert files.names("none") == files.names("a/file") == []
    assert files.exists("a")
    assert files.exists("a/file")
    assert not files.exists("a/link")


def test_the_target_of_a_link_is_relative_to_the_root(files):
    assert files.link("a/link") == "b/c"
    assert files.link("a/absolute") == "sys/y"
    assert files.link("a/file") is None
    assert files.link("a/none") is None
    assert files.link("a/file/none") is None


def test_a_device_is_refused_and_closed():
    before = open_descriptors()
    assert refusal(lambda: Files("/").open("dev/null")) == Mentions("/dev/null", "regular file")
    assert open_descriptors() == before


@pytest.mark.parametrize("call", ["open", "names", "link"])
def test_a_loop_of_links_cannot_be_read(tmp_path, call):
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(lambda: getattr(Files(str(tmp_path)), call)("loop/x")) == Mentions(
        f"{tmp_path}/loop/x", "Too many levels of symbolic links"
    )


def test_a_text_is_read_up_to_4_mib(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * ((4 << 20) + 1))
    assert len(Files(str(tmp_path)).text("long")) == 4 << 20
