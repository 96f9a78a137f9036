# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files that the virtual machines of a host read and write, and uses that would destroy data. Pure.

A file that is written has one user. Files that are only read (bases, kernels, read-only disks) may have many.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor, ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

BASE = "the base image"
DISK = "disk"
WRITTEN_BASE = "every disk created from a base is damaged when the base is written to"
WRITTEN_TWICE = "two writers of one file destroy its contents"
READ_AND_WRITTEN = "one would overwrite what the other reads"


@dataclass
class Use:
    """A virtual machine's use of a file: ``role`` is its name in messages."""

    domain: str
    path: str
    role: str
    writes: bool


def uses(spec: DomainSpec) -> Iterator[Use]:
    """Return the uses of the files of a spec."""
    return (use for use in _uses(spec) if use.path != os.devnull)


def _uses(spec: DomainSpec) -> Iterator[Use]:
    for disk in spec.disks:
        yield Use(spec.name, disk.path, DISK, not disk.read_only)
        if disk.base:
            yield Use(spec.name, disk.base, BASE, writes=False)
        if disk.is_made:
            yield Use(spec.name, partial(disk.path), "the file that a disk is made in", writes=True)
    yield Use(spec.name, spec.console_log_path, "console_log", writes=True)
    if spec.boot:
        yield Use(spec.name, spec.boot.kernel, "the kernel", writes=False)
        if spec.boot.initrd:
            yield Use(spec.name, spec.boot.initrd, "the initrd", writes=False)


def partial(path: str) -> str:
    """Return the temporary path of a disk or base that is made, until it is complete and gets its name."""
    return f"{path}.part"


def uses_of_domain(name: str, *descriptions: str | None) -> Iterator[Use]:
    """Read the file uses of a domain from libvirt's XML. Volumes of storage pools have no path there."""
    reported = set()
    for xml in filter(None, descriptions):
        root = ET.fromstring(xml)
        files = [(item.get("file"), "the console's log", True) for item in root.iterfind("devices/*/log")]
        for tag, role in (("kernel", "the kernel"), ("initrd", "the initrd")):
            files.append((root.findtext(f"os/{tag}"), role, False))
        for disk in root.iterfind("devices/disk"):
            source = disk.find("source")
            path = None if source is None else source.get("file") or source.get("dev")
            files.append((path, DISK, disk.find("readonly") is None))
        for path, role, writes in files:
            if path and (path, role, writes) not in reported:
                reported.add((path, role, writes))
                yield Use(name, path, role, writes)


def paths(specs: list[DomainSpec], hypervisor: Hypervisor) -> list[str]:
    """Return the paths to observe for ``conflicts_on_host`` and ``removable``."""
    paths_of_specs = [use.path for spec in specs for use in uses(spec)]
    return [*paths_of_specs, *(use.path for domain in hypervisor.domains.values() for use in _all_uses(domain))]


def _all_uses(domain: ObservedDomain) -> Iterator[Use]:
    return uses_of_domain(domain.name, domain.inactive_xml, domain.live_xml)


def conflicts(
    new_uses: Iterable[Use], foreign_uses: Iterable[Use], identity: Callable[[str], str]
) -> Iterator[Finding]:
    """Yield a finding for each of ``new_uses`` that conflicts with another of them or of ``foreign_uses``."""
    first: dict[str, list[Use]] = {}
    for use in foreign_uses:
        first.setdefault(identity(use.path), []).append(use)
    for use in new_uses:
        uses_of_file = first.setdefault(identity(use.path), [])
        conflicting = next((item for item in uses_of_file if _collide(use, item)), None)
        uses_of_file.append(use)
        if conflicting is not None:
            yield _finding(use, conflicting)


def conflicts_on_host(specs: list[DomainSpec], hypervisor: Hypervisor, stopping: set[str]) -> list[Finding]:
    """Return the conflicts with the files of this host: links, bases of bases, and files of other domains.

    ``stopping`` are domains of ``specs`` that are stopped before any is started. Any other running domain still has the
    files that it was started with.
    """
    listed = {spec.name for spec in specs}
    foreign_uses = []
    for domain in hypervisor.domains.values():
        if domain.name not in listed:
            foreign_uses += list(_all_uses(domain))
    new_uses = [item for spec in specs for use in uses(spec) for item in _with_bases(use, hypervisor)]
    foreign_uses = [item for use in foreign_uses for item in _with_bases(use, hypervisor)]
    findings = list(conflicts(new_uses, foreign_uses, lambda path: identity(hypervisor, path)))
    for spec in specs:
        running = [
            use
            for domain in hypervisor.domains.values()
            if domain.running and domain.name in listed and domain.name not in {spec.name, *stopping}
            for use in uses_of_domain(domain.name, domain.live_xml)
        ]
        for use in uses(spec):
            if use.role != DISK:
                continue
            conflicting = next((item for item in running if _same(hypervisor, use, item) and _collide(use, item)), None)
            if conflicting is not None:
                findings.append(
                    Finding(
                        spec.name,
                        f"disk {use.path} is still in the running virtual machine {conflicting.domain}",
                        "its definition no longer has the disk, but its QEMU does",
                        "restart or stop that virtual machine first",
                    )
                )
        findings += _dangling(spec, hypervisor)
    return list({(item.domain, item.what): item for item in findings}.values())


def removable(spec: DomainSpec, specs: list[DomainSpec], hypervisor: Hypervisor) -> tuple[list[str], list[Finding]]:
    """Return the disks of ``spec`` that were made here and have no other user, and why others stay."""
    other_uses: list[Use] = []
    for listed_spec in specs:
        if listed_spec.name != spec.name:
            other_uses += [item for use in uses(listed_spec) for item in _with_bases(use, hypervisor)]
    for domain in hypervisor.domains.values():
        if domain.name != spec.name:
            other_uses += [item for use in _all_uses(domain) for item in _with_bases(use, hypervisor)]
    # A disk of ``spec`` that it also uses as a base, kernel or log stays, too.
    other_uses += [item for use in uses(spec) for item in _with_bases(use, hypervisor) if item.role != DISK]
    users = {identity(hypervisor, use.path): use for use in other_uses}
    removed: dict[str, None] = {}
    findings: list[Finding] = []
    for disk in spec.disks:
        file = hypervisor.files.get(disk.path)
        if not disk.is_made or file is None or not file.exists:
            continue
        user = users.get(file.identity)
        if user is not None:
            reason = f"it is {user.role} of virtual machine {user.domain}"
        elif not file.is_own:
            reason = "it is a symbolic link, so it was not created here"
        elif disk.base and (file.base is None or identity(hypervisor, file.base) != identity(hypervisor, disk.base)):
            reason = f"it is not an overlay of {disk.base}, so it was not created here"
        else:
            removed[disk.path] = None
            continue
        findings.append(
            Finding(spec.name, f"disk {disk.path} is kept", reason, "remove it manually if it is not needed", WARN)
        )
    return list(removed), findings


def identity(hypervisor: Hypervisor, path: str) -> str:
    """Return one name for all paths that lead to one file; the path itself if it was not observed."""
    file = hypervisor.files.get(path)
    return file.identity if file else f"path {path}"


def _with_bases(use: Use, hypervisor: Hypervisor) -> Iterator[Use]:
    """Yield a use, and uses of the bases that the file names, which are read with it."""
    yield use
    if use.role not in (DISK, BASE):
        return
    seen = {use.path}
    file = hypervisor.files.get(use.path)
    while file is not None and file.base is not None and file.base not in seen:
        seen.add(file.base)
        yield Use(use.domain, file.base, BASE, writes=False)
        file = hypervisor.files.get(file.base)


def _same(hypervisor: Hypervisor, first: Use, second: Use) -> bool:
    return identity(hypervisor, first.path) == identity(hypervisor, second.path)


def _collide(first: Use, second: Use) -> bool:
    twice = first.domain == second.domain and first.role == second.role == DISK
    return first.writes or second.writes or twice


def _finding(use: Use, conflicting: Use) -> Finding:
    spelling = "" if use.path == conflicting.path else f" ({conflicting.path})"
    if use.domain == conflicting.domain and use.role == conflicting.role:
        problem, reason = f"{use.role} {use.path} is listed twice{spelling}", WRITTEN_TWICE
    else:
        whose = "its own" if use.domain == conflicting.domain else f"virtual machine {conflicting.domain}'s"
        problem = f"{use.role} {use.path} is also {whose} {conflicting.role.removeprefix('the ')}{spelling}"
        reason = WRITTEN_TWICE if use.writes and conflicting.writes else READ_AND_WRITTEN
        if BASE in (use.role, conflicting.role):
            reason = WRITTEN_BASE
    return Finding(use.domain, problem, reason, "use a separate file for each")


def _dangling(spec: DomainSpec, hypervisor: Hypervisor) -> Iterator[Finding]:
    for disk in spec.disks:
        file = hypervisor.files.get(disk.path)
        if disk.is_made and file is not None and not file.is_own and not file.exists:
            yield Finding(
                spec.name,
                f"disk {disk.path} is a symbolic link to {file.identity.removeprefix('path ')}, which does not exist",
                "a disk created in its place would not be at the link's target",
                "mount the link's target, or remove the link",
            )
