# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lines in which a reviewer reads the differences of two images: sizes, kinds of files, settings and sections."""

from __future__ import annotations

from dataclasses import replace

import pytest
from image_samples import Sample
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.changes import changes, text

IMAGE = Sample("node", base=b"base").manifest
OTHER = replace(IMAGE, writable_mib=2048)
BEGIN = "image node: "
FILE = {"type": "file", "mode": "0644", "owner": 0, "group": 0, "size_bytes": 10, "sha256": "1" * 64}
FOLDER = {"type": "directory", "mode": "0755", "owner": 0, "group": 0}
NET_RAW = "0100000200200000000000000000000000000000"


def file_lines(before, after):
    """Return the lines about one file, /x, that changes from one entry to another; None: it is not there."""
    listings = [{"base": {} if entry is None else {"/x": entry}} for entry in (before, after)]
    return [line for line in text(changes(IMAGE, OTHER, *listings)) if "/x" in line]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (None, FILE, "  + /x (layer base, 10 B)"),
        (None, FOLDER, "  + /x (layer base, directory)"),
        (FOLDER, None, "  - /x (layer base, directory)"),
        (
            FOLDER,
            FILE,
            "  ~ /x (layer base): type directory -> file, content, none -> 10 B, mode 0755 -> 0644",
        ),
        (FILE, {**FILE, "size_bytes": 11}, "  ~ /x (layer base): content, 10 B -> 11 B"),
        (FILE, {**FILE, "group": 4}, "  ~ /x (layer base): owner 0:0 -> 0:4"),
        (FILE, {**FILE, "capabilities": NET_RAW}, "  ~ /x (layer base): capabilities none -> cap_net_raw=ep"),
    ],
)
def test_a_changed_file_has_one_line_with_all_its_changes(before, after, line):
    assert file_lines(before, after) == [line]


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (1_000_000, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (1_000_000_000_000, "1.0 TB"),
        (1_234_500_000_000_000, "1234.5 TB"),
    ],
)
def test_sizes_have_decimal_units(size, shown):
    assert file_lines(None, {**FILE, "size_bytes": size}) == [f"  + /x (layer base, {shown})"]


def test_changed_settings_are_listed():
    new = replace(IMAGE, suite="trixie", architecture="arm64", kernel=replace(IMAGE.kernel, version="6.12"))
    lines = text(changes(IMAGE, replace(new, writable_mib=512), {"base": {}}, {"base": {}}))
    assert lines[0].startswith(BEGIN)
    assert lines[1:-6] == [
        "  ~ distribution: debian bookworm amd64 -> debian trixie arm64",
        "  ~ kernel: 6.1.0-31-cloud-amd64 -> 6.12",
        "  ~ writable_mib: 1024 -> 512",
    ]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (["a", "b"], ["a", "b"], ([], [], False)),
        (["a", "b"], ["b", "a"], ([], [], True)),
        (["a", "b"], ["b", "c"], (["c"], ["a"], False)),
        (["a", "b", "c"], ["c", "d", "b"], (["d"], ["a"], True)),
        (["console=tty0"], ["console=tty0", "console=tty0"], (["console=tty0"], [], False)),
    ],
)
def test_kernel_arguments_are_compared_with_their_number_and_order(before, after, found):
    images = [replace(OTHER, kernel_arguments=tuple(words)) for words in (before, after)]
    arguments = changes(*images, {"base": {}}, {"base": {}})["kernel_arguments"]
    assert (arguments["added"], arguments["removed"], arguments["reordered"]) == found


def test_as_many_lines_as_shown_have_no_count_of_others():
    three = {"base": {f"/{name}": FILE for name in "abc"}}
    lines = text(changes(IMAGE, OTHER, {"base": {}}, three), shown=3)
    assert not [line for line in lines if "more" in line]
    lines = text(changes(IMAGE, OTHER, {"base": {}}, three), shown=2)
    assert [line for line in lines if "more" in line] == ["    and 1 more"]


def test_a_changed_image_with_the_same_files_has_no_section_of_files_or_packages():
    same = {"base": {"/x": FILE}}
    lines = text(changes(IMAGE, OTHER, same, same))
    assert lines[1:] == [
        "  ~ writable_mib: 1024 -> 2048",
        "bytes:",
        "    kernel: 6 B, unchanged",
        "    first stage: 11 B, unchanged",
        "    layer base: 4 B, unchanged",
        "    total: 21 B -> 21 B",
        "    to fetch if the old image is there: 0 B",
    ]


def test_the_bytes_of_a_blob_with_another_name_are_not_fetched():
    new = Sample("node", renamed=b"base").manifest
    found = changes(IMAGE, new, {"base": {}}, {"renamed": {}})["bytes"]
    assert (found["old_bytes"], found["new_bytes"], found["fetch_bytes"]) == (21, 21, 0)
    assert found["parts"][2:] == [
        {"name": "layer renamed", "old_bytes": None, "new_bytes": 4, "same": False},
        {"name": "layer base", "old_bytes": 4, "new_bytes": None, "same": False},
    ]


def test_a_missing_listing_is_refused_with_the_remedy():
    with raises(ImageError, "node", "base", "listing"):
        changes(IMAGE, OTHER, {"base": {}}, {})
