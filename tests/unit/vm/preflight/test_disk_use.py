# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The owners of disk files, with real files and real images."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from machines import hypervisor, lab, observed, plan, request

from ansible_collections.sailloft.fleet.plugins.module_utils.vm import converge, dry_run
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import disk_files
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor, ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import checks, disk_use
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed here")
REMEDY = "use a separate file for each"


def image(path: Path, base: Path | str | None = None) -> str:
    """Make an image with qemu-img, of 1 MiB or on top of ``base``."""
    over = ["-b", str(base), "-F", "qcow2"] if base else []
    command = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", *over, str(path), "1M"]
    subprocess.run(command, check=True, cwd=path.parent)
    return str(path)


def seen(specs: list[Any], *domains: ObservedDomain) -> Hypervisor:
    found = hypervisor(domains={domain.name: domain for domain in domains})
    found.files = disk_files.observe(disk_use.paths(specs, found))
    return found


def conflicts(
    *requests: dict[str, Any], domains: tuple[ObservedDomain, ...] = (), stopping: set[str] | None = None
) -> list[str]:
    specs = parse_specs(list(requests))
    found = disk_use.conflicts_on_host(specs, seen(specs, *domains), stopping or set())
    assert all(item.severity == "refuse" for item in found)
    return [f"{item.domain}: {item.what}" for item in found]


def vm(name: str, *disks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "disks": list(disks), **more}


def test_a_disk_that_is_also_a_base_image_is_refused() -> None:
    own = vm("a", {"path": "/img/a", "base": "/img/a"})
    assert conflicts(own) == ["a: the base image /img/a is also its own disk"]
    # The order does not matter, nor which virtual machine has which disk.
    over, on = vm("a", {"path": "/img/a", "base": "/img/base"}), vm("b", {"path": "/img/base"})
    assert conflicts(over, on) == ["b: disk /img/base is also virtual machine a's base image"]
    assert conflicts(on, over) == ["a: the base image /img/base is also virtual machine b's disk"]
    # A read-only disk harms no other machine.
    assert conflicts(over, vm("b", {"path": "/img/base", "read_only": True})) == []
    assert conflicts(over, vm("b", {"path": "/img/b", "base": "/img/base"})) == []


@pytest.mark.parametrize("more", [{}, {"read_only": True}])
def test_a_disk_that_is_listed_twice_is_refused(more: dict[str, Any]) -> None:
    assert conflicts(vm("a", {"path": "/img/a", **more}, {"path": "/img/a", **more})) == [
        "a: disk /img/a is listed twice"
    ]


def test_a_writable_disk_of_two_virtual_machines_is_refused() -> None:
    one, other = vm("a", {"path": "/img/x"}), vm("b", {"path": "/img/x"})
    assert conflicts(one, other) == ["b: disk /img/x is also virtual machine a's disk"]
    read = {"path": "/img/x", "read_only": True}
    assert conflicts(one, vm("b", read)) == ["b: disk /img/x is also virtual machine a's disk"]
    assert conflicts(vm("a", read), vm("b", read)) == []


def test_conflicts_with_a_console_log_kernel_or_partial_file_are_refused() -> None:
    base = vm("a", {"path": "/img/a", "base": "/img/base"})
    assert conflicts(base, vm("b", console_log="/img/base")) == [
        "b: console_log /img/base is also virtual machine a's base image"
    ]
    assert conflicts(vm("a", {"path": "/img/a", "base": "/img/a.part"})) == [
        "a: the file that a disk is made in /img/a.part is also its own base image"
    ]
    assert conflicts(vm("a", {"path": "/img/vmlinuz"}, boot={"kernel": "/img/vmlinuz"})) == [
        "a: the kernel /img/vmlinuz is also its own disk"
    ]
    assert conflicts(vm("a", console_log="/log"), vm("b", console_log="/log")) == [
        "b: console_log /log is also virtual machine a's console_log"
    ]
    assert conflicts(vm("a", console_log="/dev/null"), vm("b", console_log="/dev/null")) == []


def test_conflicts_are_found_for_links_to_the_same_file(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.touch()
    (tmp_path / "link").symlink_to(base)
    os.link(base, tmp_path / "twin")
    (tmp_path / "folder").symlink_to(tmp_path)
    over = vm("a", {"path": str(tmp_path / "a"), "base": str(base)})
    for name in ("link", "twin", "folder/base"):
        other = str(tmp_path / name)
        assert conflicts(over, vm("b", {"path": other})) == [
            f"b: disk {other} is also virtual machine a's base image ({base})"
        ]
    # A disk that does not exist yet has no inode.
    late = str(tmp_path / "folder" / "a")
    assert conflicts(over, vm("b", {"path": late})) == [
        f"b: disk {late} is also virtual machine a's disk ({tmp_path / 'a'})"
    ]


def other_domain(name: str, *disks: dict[str, Any], running: bool = False, **more: Any) -> ObservedDomain:
    """Return a domain that libvirt has."""
    return observed(plan(name=name, disks=list(disks), gpus={}, nics={}, vcpus=2, **more), running)


def test_a_file_in_both_xmls_is_counted_once_and_a_pool_volume_is_ignored() -> None:
    volume = "<disk><source pool='p' volume='v'/></disk>"
    xml = f"<domain><devices><disk><source file='/img/x'/></disk>{volume}</devices></domain>"
    assert list(disk_use.uses_of_domain("a", xml, None, xml)) == [disk_use.Use("a", "/img/x", disk_use.DISK, True)]


def test_disks_of_unlisted_domains_are_checked() -> None:
    db = other_domain("db", {"path": "/img/db"}, {"path": "/img/tools.iso", "read_only": True, "format": "raw"})
    assert conflicts(vm("a", {"path": "/img/db"}), domains=(db,)) == [
        "a: disk /img/db is also virtual machine db's disk"
    ]
    assert conflicts(vm("a", {"path": "/img/a", "base": "/img/db"}), domains=(db,)) == [
        "a: the base image /img/db is also virtual machine db's disk"
    ]
    assert conflicts(vm("a", {"path": "/img/tools.iso", "read_only": True}), domains=(db,)) == []
    assert conflicts(vm("a", {"path": "/img/tools.iso"}), domains=(db,)) == [
        "a: disk /img/tools.iso is also virtual machine db's disk"
    ]
    # A domain's own definition is not that of another domain.
    assert conflicts(vm("db", {"path": "/img/db"}), domains=(db,)) == []


@needs_qemu_img
def test_base_images_of_unlisted_domains_are_read_from_the_images(tmp_path: Path) -> None:
    """A domain that is not listed has an overlay of an overlay of the golden image."""
    golden = image(tmp_path / "golden")
    image(tmp_path / "middle", base="golden")
    over = image(tmp_path / "over", base=tmp_path / "middle")
    have = other_domain("db", {"path": over})
    for path in (golden, str(tmp_path / "middle")):
        assert conflicts(vm("a", {"path": path}), domains=(have,)) == [
            f"a: disk {path} is also virtual machine db's base image"
        ]
    assert conflicts(vm("a", {"path": str(tmp_path / "new"), "base": golden}), domains=(have,)) == []


@needs_qemu_img
@pytest.mark.parametrize("name", ["nbd://host/x", "json:{}"])
def test_a_base_that_is_not_a_file_is_ignored(tmp_path: Path, name: str) -> None:
    path = image(tmp_path / "disk", base=name)
    assert disk_files.observe([path])[path].base is None


def test_damaged_images_and_other_files_are_read_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"QFI\xfb")
    (tmp_path / "spoilt").write_bytes(b"QFI\xfb" + b"\xff" * 100)
    (tmp_path / "loop").write_bytes(b"QFI\xfb" + (3).to_bytes(4, "big") + (20).to_bytes(8, "big") + b"\0\0\0\4loop")
    os.mkfifo(tmp_path / "fifo")
    found = disk_files.observe(str(tmp_path / name) for name in ("short", "spoilt", "fifo", "missing", "loop"))
    assert [Path(file.base).name if file.base else None for file in found.values()] == [None, None, None, None, "loop"]
    assert [file.exists for file in found.values()] == [True, True, True, False, True]


def test_a_disk_of_a_running_virtual_machine_is_refused_for_another() -> None:
    have = other_domain("b", {"path": "/img/x"}, running=True)
    moved = vm("a", {"path": "/img/x"}), vm("b", {"path": "/img/y"})
    assert conflicts(*moved, domains=(have,)) == ["a: disk /img/x is still in the running virtual machine b"]
    assert conflicts(*moved, domains=(have,), stopping={"b"}) == []


def test_a_disk_that_is_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "disk").symlink_to("/nowhere/disk")
    assert conflicts(vm("a", {"path": str(tmp_path / "disk"), "base": "/img/base"})) == [
        f"a: disk {tmp_path / 'disk'} is a symbolic link to /nowhere/disk, which does not exist"
    ]


def test_checks_and_dry_run_refuse_a_disk_that_is_its_own_base_image() -> None:
    disks = [{"path": "/img/a", "base": "/img/a"}]
    text = (
        "virtual machine gpu-vm: the base image /img/a is also its own disk: every disk created from a base is "
        "damaged when the base is written to; use a separate file for each"
    )
    made = plan(disks=disks)
    with pytest.raises(RefusedError) as caught:
        checks.check([made], lab(), seen([made.spec]), set(), set(), paths_may_come=True)
    assert text in str(caught.value)
    params = {
        "topology": lab().to_dict(),
        "domains": [request(disks=disks)],
        "gpu_module_ids": {},
        "gpu_partitions": {},
        "recording": None,
    }
    with pytest.raises(DomainError) as refused:
        dry_run.planned({**params, "accelerators": {}, "host_name": "h", "path": None, "boot_trial": False}, True)
    assert text in str(refused.value)


@needs_qemu_img
class TestRemoval:
    """Removal with state absent and remove_disks."""

    def kept(self, specs: list[Any], *domains: ObservedDomain) -> dict[str, tuple[list[str], list[str]]]:
        found = seen(specs, *domains)
        answers = {spec.name: disk_use.removable(spec, specs, found) for spec in specs}
        return {name: (gone, [f"{item.what}: {item.why}" for item in kept]) for name, (gone, kept) in answers.items()}

    def test_an_overlay_is_removed_and_its_base_is_kept(self, tmp_path: Path) -> None:
        base, over = image(tmp_path / "base"), image(tmp_path / "over", tmp_path / "base")
        own = image(tmp_path / "own")
        specs = parse_specs([vm("a", {"path": over, "base": base}, {"path": own}, {"path": f"{over}2", "base": base})])
        assert self.kept(specs) == {"a": ([over], [])}

    def test_a_base_image_is_never_removed(self, tmp_path: Path) -> None:
        base = image(tmp_path / "base")
        over = image(tmp_path / "over", tmp_path / "base")
        (tmp_path / "link").symlink_to(base)
        for wrong in (base, str(tmp_path / "link")):
            specs = parse_specs([vm("a", {"path": wrong, "base": base})])
            assert self.kept(specs) == {"a": ([], [f"disk {wrong} is kept: it is the base image of virtual machine a"])}
        # An overlay can be the base of another domain's disk.
        top = image(tmp_path / "top", tmp_path / "over")
        specs = parse_specs([vm("a", {"path": over, "base": base})])
        assert self.kept(specs, other_domain("db", {"path": top})) == {
            "a": ([], [f"disk {over} is kept: it is the base image of virtual machine db"])
        }

    def test_files_that_were_not_created_here_are_kept(self, tmp_path: Path) -> None:
        base, other = image(tmp_path / "base"), image(tmp_path / "other")
        plain = image(tmp_path / "plain")
        (tmp_path / "raw").write_bytes(b"\0" * 4096)
        foreign = image(tmp_path / "foreign", tmp_path / "other")
        (tmp_path / "link").symlink_to(image(tmp_path / "over", tmp_path / "base"))
        link, raw = str(tmp_path / "link"), str(tmp_path / "raw")
        specs = parse_specs([vm("a", *({"path": path, "base": base} for path in (plain, raw, foreign, link)))])
        why = f"it is not an overlay of {base}, so it was not created here"
        assert self.kept(specs)["a"] == (
            [],
            [
                f"disk {plain} is kept: {why}",
                f"disk {raw} is kept: {why}",
                f"disk {foreign} is kept: {why}",
                f"disk {link} is kept: it is a symbolic link, so it was not created here",
            ],
        )
        assert Path(other).exists()

    def test_a_disk_that_another_domain_uses_is_kept(self, tmp_path: Path) -> None:
        base, over = image(tmp_path / "base"), image(tmp_path / "over", tmp_path / "base")
        specs = parse_specs([vm("a", {"path": over, "base": base})])
        why = f"disk {over} is kept: it is disk of virtual machine db"
        assert self.kept(specs, other_domain("db", {"path": over})) == {"a": ([], [why])}
        assert self.kept(specs, other_domain("db", {"path": over, "read_only": True})) == {"a": ([], [why])}

    def test_a_run_removes_the_disks_that_check_mode_reports(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base, over = image(tmp_path / "base"), image(tmp_path / "over", tmp_path / "base")
        golden = image(tmp_path / "golden")

        class Libvirt:
            def __init__(self, _uri: str) -> None:
                pass

            def observe(self, _paths: list[str]) -> Hypervisor:
                return hypervisor()

            def close(self) -> None:
                pass

        monkeypatch.setattr(converge, "Client", Libvirt)
        disks = [{"path": over, "base": base}, {"path": golden, "base": golden}]
        params = {
            "state": "absent",
            "domains": [vm("a", *disks)],
            "gpu_module_ids": {},
            "gpu_partitions": {},
            "uri": "",
            "allow_restart": False,
            "remove_disks": True,
            "shutdown_timeout_s": 5,
        }
        predicted = converge.converge(params, check_mode=True)
        assert sorted(item.name for item in tmp_path.iterdir()) == ["base", "golden", "over"]
        done = converge.converge(params, check_mode=False)
        assert done == predicted
        assert [row["actions"] for row in done["domains"]] == [["remove_disks"]]
        assert [item["what"] for item in done["findings"]] == [f"disk {golden} is kept"]
        assert sorted(item.name for item in tmp_path.iterdir()) == ["base", "golden"]
        again = converge.converge(params, check_mode=False)
        assert (again["changed"], again["domains"][0]["actions"]) == (False, [])
