# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The differences between two images, as a reviewer reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from image_samples import Sample
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.changes import changes, text


def file(digest="1" * 64, size=10, mode="0644", owner=0):
    return {"type": "file", "mode": mode, "owner": owner, "group": 0, "size_bytes": size, "sha256": digest}


FOLDER = {"type": "directory", "mode": "0755", "owner": 0, "group": 0}
WHITEOUT = {"type": "whiteout", "mode": "0000", "owner": 0, "group": 0}
LINK = {"type": "link", "mode": "0777", "owner": 0, "group": 0, "target": "bash"}

OLD = Sample(
    "gpu-node",
    packages=[("bash", "5.2-1", "amd64", "base"), ("nano", "7.2", "amd64", "base"), ("driver", "535", "amd64", "gpu")],
    arguments=["console=ttyS0", "quiet", "iommu=on"],
    base=b"b" * 9_000_000,
    gpu=b"g" * 5_000_000,
)
NEW = Sample(
    "gpu-node",
    packages=[("bash", "5.2-1", "amd64", "base"), ("htop", "3.2", "amd64", "gpu"), ("driver", "550", "amd64", "gpu")],
    arguments=["console=ttyS0", "iommu=pt", "quiet"],
    base=b"b" * 9_000_000,
    gpu=b"g" * 5_500_000,
)
OLD_LISTINGS = {
    "base": {"/bin": FOLDER, "/bin/bash": file(), "/bin/nano": file(size=300_000), "/etc/motd": file()},
    "gpu": {"/lib/driver.ko": file(size=1_000_000)},
}
NEW_LISTINGS = {
    "base": OLD_LISTINGS["base"],
    "gpu": {
        "/lib/driver.ko": file("2" * 64, size=1_200_000),
        "/bin/nano": WHITEOUT,
        "/bin/htop": file(size=2_500, mode="0755"),
        "/bin/sh": LINK,
        "/etc/motd": file(mode="0600", owner=5),
    },
}


def test_the_diff_lists_all_changes():
    found = changes(OLD.manifest, NEW.manifest, OLD_LISTINGS, NEW_LISTINGS)
    assert text(found) == [
        f"image gpu-node: {OLD.digest} -> {NEW.digest}",
        "  - kernel argument iommu=on",
        "  + kernel argument iommu=pt",
        "packages: 1 added, 1 removed, 1 changed",
        "  - nano 7.2 amd64 (layer base)",
        "  ~ driver 535 -> 550 amd64 (layer gpu)",
        "  + htop 3.2 amd64 (layer gpu)",
        "files: 2 added, 1 removed, 2 changed",
        "  - /bin/nano (layer base, 300.0 kB)",
        "  ~ /etc/motd (layer gpu): mode 0644 -> 0600, owner 0:0 -> 5:0",
        "  ~ /lib/driver.ko (layer gpu): content, 1.0 MB -> 1.2 MB",
        "  + /bin/htop (layer gpu, 2.5 kB)",
        "  + /bin/sh (layer gpu, link)",
        "bytes:",
        "    kernel: 6 B, unchanged",
        "    first stage: 11 B, unchanged",
        "    layer base: 9.0 MB, unchanged",
        "  ~ layer gpu: 5.0 MB -> 5.5 MB",
        "    total: 14.0 MB -> 14.5 MB",
        "    to fetch if the old image is there: 5.5 MB",
    ]
    assert found["bytes"]["fetch_bytes"] == 5_500_000
    assert found["bytes"]["new_bytes"] == 9_000_000 + 5_500_000 + 6 + 11


def test_the_diff_of_the_first_image_lists_additions():
    lines = text(changes(None, OLD.manifest, {}, OLD_LISTINGS))
    assert lines[0] == f"image gpu-node: none -> {OLD.digest}"
    assert "  ~ kernel: none -> 6.1.0-31-cloud-amd64" in lines
    assert "packages: 3 added, 0 removed, 0 changed" in lines
    assert "  + layer base: none -> 9.0 MB" in lines
    assert lines[-1] == "    to fetch if the old image is there: 14.0 MB"


def test_changes_of_kernel_and_layers_are_listed():
    new = Sample("gpu-node", kernel=b"another kernel", arguments=["quiet", "console=ttyS0", "iommu=on"], base=b"b")
    lines = text(changes(OLD.manifest, new.manifest, OLD_LISTINGS, {"base": {}}))
    assert "  ~ layers: base gpu -> base" in lines
    assert "  ~ kernel arguments in another order" in lines
    assert "  ~ kernel: 6 B -> 14 B" in lines
    assert "  - layer gpu: 5.0 MB" in lines


def test_the_diff_of_equal_images_is_empty():
    found = changes(OLD.manifest, OLD.manifest, OLD_LISTINGS, OLD_LISTINGS)
    assert text(found) == []
    assert found["bytes"]["fetch_bytes"] == 0
    assert not any(found["files"].values())


def test_files_beyond_the_limit_are_only_counted():
    many = {"base": {f"/usr/{at:05}": file() for at in range(500)}, "gpu": {}}
    lines = text(changes(OLD.manifest, NEW.manifest, {"base": {}, "gpu": {}}, many), shown=3)
    at = lines.index("files: 500 added, 0 removed, 0 changed")
    assert lines[at + 1 : at + 5] == [
        "  + /usr/00000 (layer base, 10 B)",
        "  + /usr/00001 (layer base, 10 B)",
        "  + /usr/00002 (layer base, 10 B)",
        "    and 497 more",
    ]


def test_several_versions_of_one_package_are_listed_separately():
    kernels = [("kernel", version, "x86_64", "base") for version in ("5.14-1", "5.14-2")]
    old = Sample("node", packages=kernels[:1], base=b"1").manifest
    both = Sample("node", packages=kernels, base=b"2").manifest
    listings = {"base": {}}
    assert "  + kernel 5.14-2 x86_64 (layer base)" in text(changes(old, both, listings, listings))
    assert "  - kernel 5.14-1 x86_64 (layer base)" in text(
        changes(both, Sample("node", packages=kernels[1:], base=b"3").manifest, listings, listings)
    )


def test_control_characters_in_a_path_are_escaped():
    odd = {"base": {"/etc/\x1b[2Ja\n+ /b": file()}, "gpu": {}}
    lines = text(changes(OLD.manifest, NEW.manifest, {"base": {}, "gpu": {}}, odd))
    assert "  + '/etc/\\x1b[2Ja\\n+ /b' (layer base, 10 B)" in lines


def test_control_characters_in_a_link_target_are_escaped():
    links = [{"base": {"/etc/x": {**LINK, "target": target}}, "gpu": {}} for target in ("bash", "\x1b[2Ja\n+ /b")]
    lines = text(changes(OLD.manifest, NEW.manifest, *links))
    assert "  ~ /etc/x (layer base): target bash -> '\\x1b[2Ja\\n+ /b'" in lines


def test_a_missing_listing_is_refused():
    with raises(ImageError, "gpu-node", "layer gpu", "listing"):
        changes(None, OLD.manifest, {}, {"base": {}})


ENTRIES = st.sampled_from([FOLDER, WHITEOUT, LINK, file(), file("2" * 64)])
PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/a/d", "/ab", "/ab/c"])
LISTINGS = st.fixed_dictionaries({"base": st.dictionaries(PATHS, ENTRIES), "gpu": st.dictionaries(PATHS, ENTRIES)})


def seen(listings):
    """Return the tree that a node sees: the layers merged entry by entry, as overlayfs merges them."""
    tree = {}
    for listing in (listings["base"], listings["gpu"]):
        under = dict(tree)
        for path, entry in listing.items():
            if entry["type"] != "directory" and path in under:
                for other in [path, *(name for name in under if name.startswith(path + "/"))]:
                    tree.pop(other, None)
        for path, entry in listing.items():
            if entry["type"] != "whiteout":
                tree[path] = entry
    return tree


@given(LISTINGS, LISTINGS)
def test_files_are_compared_as_a_node_sees_them(before, after):
    files = changes(OLD.manifest, NEW.manifest, before, after)["files"]
    old, new = seen(before), seen(after)
    assert {row["path"] for row in files["added"]} == set(new) - set(old)
    assert {row["path"] for row in files["removed"]} == set(old) - set(new)
    assert {row["path"] for row in files["changed"]} == {path for path in set(old) & set(new) if old[path] != new[path]}
    back = changes(NEW.manifest, OLD.manifest, after, before)["files"]
    assert [row["path"] for row in back["added"]] == [row["path"] for row in files["removed"]]
