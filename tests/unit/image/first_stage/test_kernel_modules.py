# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel modules of the first stage: names of files, tables of modules, and every refusal."""

from __future__ import annotations

import pytest
from image_samples import refused
from kernel_trees import VERSION, kernel
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import kernel_modules

FOLDER = f"lib/modules/{VERSION}"


@pytest.mark.parametrize(
    ("path", "name", "plain"),
    [
        ("kernel/md/dm-verity.ko", "dm_verity", "kernel/md/dm-verity.ko"),
        ("loop.ko.zst", "loop", "loop.ko"),
        ("a/b.ko.xz", "b", "a/b.ko"),
        ("a/b.ko.gz", "b", "a/b.ko"),
        ("a/b.ko.bz2", "a/b.ko.bz2", "a/b.ko.bz2"),
        ("sha256-generic", "sha256_generic", "sha256-generic"),
    ],
)
def test_a_module_has_the_name_of_its_file(path, name, plain):
    assert kernel_modules.module_name(path) == name
    assert kernel_modules.plain(path) == plain


@pytest.mark.parametrize("top", ["lib", "usr/lib"])
def test_the_entries_are_the_modules_in_order_and_their_tables(tmp_path, top):
    root = kernel(tmp_path, ".gz")
    if top == "usr/lib":
        (root / "usr").mkdir()
        (root / "lib").rename(root / "usr/lib")
    found = {entry.path: entry.data.decode() for entry in kernel_modules.entries(root, VERSION)}
    names = [
        *("block/loop", "crypto/helper", "fs/squashfs", "md/dm-bufio", "md/dm-mod", "md/dm-verity"),
        *("net/failover", "net/virtio_net"),
    ]
    files = [f"kernel/{name}.ko" for name in names]
    assert list(found) == [*(f"{FOLDER}/{name}" for name in [*files, "modules.dep", "modules.alias"])]
    assert [found[f"{FOLDER}/{name}"] for name in files] == files
    needs = {
        "kernel/md/dm-verity.ko": " kernel/md/dm-mod.ko kernel/md/dm-bufio.ko",
        "kernel/net/virtio_net.ko": " kernel/net/failover.ko",
    }
    assert found[f"{FOLDER}/modules.dep"] == "".join(f"{name}:{needs.get(name, '')}\n" for name in files)
    assert found[f"{FOLDER}/modules.alias"] == "alias virtio:d1v* virtio_net\nalias dm-y dm-verity\n"


def test_soft_dependencies_of_several_lines_are_all_included(tmp_path):
    root = kernel(tmp_path)
    lines = "softdep dm_mod post: snd\nsoftdep loop pre: absent\nsoftdep loop pre: snd\noptions loop max_loop=8\n"
    (root / FOLDER / "modules.softdep").write_text("softdep dm-mod pre: helper\n" + lines)
    names = [entry.path.rpartition("/")[2] for entry in kernel_modules.entries(root, VERSION)]
    assert {"snd.ko", "helper.ko"} <= set(names)
    (root / FOLDER / "modules.softdep").unlink()
    names = [entry.path.rpartition("/")[2] for entry in kernel_modules.entries(root, VERSION)]
    assert not {"snd.ko", "helper.ko"} & set(names)


def test_drivers_of_the_site_are_added_with_what_they_need(tmp_path):
    root = kernel(tmp_path)
    (root / FOLDER / "modules.softdep").write_text("softdep snd pre: helper\n")
    (root / FOLDER / "modules.builtin").write_text("kernel/fs/overlay.ko\nkernel/net/built-in.ko\n")
    usual, found = (
        {entry.path.rpartition("/")[2] for entry in kernel_modules.entries(root, VERSION, drivers)}
        for drivers in ((), ("snd", "built-in"))
    )
    assert found - usual == {"snd.ko"} | ({"helper.ko"} - usual)


def test_a_driver_that_the_kernel_lacks_is_refused(tmp_path):
    message = refused(kernel_modules.entries, kernel(tmp_path), VERSION, ["snd", "nfp-2"])
    assert message == Mentions(f"kernel {VERSION}", "nfp_2", "drivers")


@pytest.mark.parametrize(
    ("drop", "told"),
    [
        ("loop", "has no loop; use a kernel package with all modules"),
        ("squashfs", "has no squashfs; use a kernel package with all modules"),
        (
            "virtio_net",
            f"has none of the network drivers {', '.join(kernel_modules.NETWORK)}; "
            "use a kernel package with all modules",
        ),
    ],
)
def test_a_kernel_that_lacks_a_needed_module_is_refused(tmp_path, drop, told):
    root = kernel(tmp_path, drop=drop)
    assert refused(kernel_modules.entries, root, VERSION) == f"kernel {VERSION}: {told}"
    # As a part of the kernel itself, it is enough.
    (root / FOLDER / "modules.builtin").write_text(f"kernel/fs/overlay.ko\nkernel/x/{drop}.ko\n")
    assert kernel_modules.entries(root, VERSION)


def test_a_kernel_without_tables_is_refused(tmp_path):
    root = kernel(tmp_path)
    assert refused(kernel_modules.entries, root, "9") == Mentions("kernel 9", f"{root}/lib/modules")
    for name in ("modules.alias", "modules.builtin", "modules.dep"):
        (root / FOLDER / name).unlink()
        assert refused(kernel_modules.entries, root, VERSION) == Mentions(VERSION, f"{root}/{FOLDER}/{name}")


@pytest.mark.parametrize("name", ["kernel/net/virtio_net.ko", "modules.dep", "modules.alias"])
def test_links_are_followed_within_the_image(tmp_path, name):
    """The first stage is public: a package must not get a file of the build host into it."""
    root = kernel(tmp_path / "root")
    (tmp_path / "host.key").write_text("the build host's key")
    path = root / FOLDER / name
    (root / "own").write_text(path.read_text())
    path.unlink()
    path.symlink_to("/own")
    before = kernel_modules.entries(root, VERSION)
    assert not [entry for entry in before if b"host's key" in entry.data]
    path.unlink()
    path.symlink_to(tmp_path / "host.key")
    assert str(tmp_path / "root") in refused(kernel_modules.entries, root, VERSION)


def test_paths_of_a_table_lead_only_into_the_image(tmp_path):
    root = kernel(tmp_path / "root")
    (tmp_path / "virtio_net.ko").write_text("the build host's key")
    table = root / FOLDER / "modules.dep"
    table.write_text(table.read_text().replace("kernel/net/virtio_net.ko", f"{'../' * 20}{tmp_path}/virtio_net.ko"))
    assert str(root) in refused(kernel_modules.entries, root, VERSION)
