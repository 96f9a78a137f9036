# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests for virtual machines from plain data, checked once here, so that later code need not check them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields
from functools import partial
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request import settings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import (
    SETTING,
    DomainSpec,
    explicit_addresses,
    inner_kind,
)


def refusal(domain: str) -> Callable[..., DomainError]:
    """Return the function that makes an error of subject (the path of a setting, "" for none), cause and remedy."""

    def refuse(subject: str, cause: str, remedy: str) -> DomainError:
        return DomainError(f"{subject}: {cause}" if subject else cause, remedy, domain=domain)

    return refuse


def parse_specs(data: list[dict[str, Any]]) -> list[DomainSpec]:
    """Return the specs of all virtual machines of one host, from plain data. Raises DomainError on the first error.

    ``None`` means "not given" (Ansible passes it for an option without a value).
    """
    specs = [_spec(item) for item in data]
    _unique((spec.name, spec.name) for spec in specs)
    owners: dict[str, str] = {}
    macs: dict[str, str] = {}
    for spec in specs:
        for address in explicit_addresses(spec):
            if address in owners:
                owner = owners[address]
                assignment = "twice" if owner == spec.name else f"and to virtual machine {owner}"
                raise DomainError(
                    f"PCI device {address} is assigned to it {assignment}", "assign it once", domain=spec.name
                )
            owners[address] = spec.name
        for index in range(len(spec.interfaces)):
            mac = spec.mac(index)
            if mac in macs:
                raise DomainError(f"MAC {mac} is already used by {macs[mac]}", "set another mac", domain=spec.name)
            macs[mac] = spec.name
    return specs


def parse_module_ids(data: dict[str, Any] | None) -> dict[str, int]:
    """Return GPU physical ids by PCI address, from plain data. Raises DomainError if one of them is invalid."""
    ids: dict[str, int] = {}
    for key, number in (data or {}).items():
        try:
            # A key of a dictionary, and a value from the command line, may be text.
            written = isinstance(number, str) and settings.MODULE_ID.fullmatch(number)
            ids[settings.check_address(key)] = values.integer(
                int(number) if written else number, 0, settings.DEVICES_MAX
            )
        except InvalidValueError as error:
            raise DomainError(
                f"gpu_module_ids: {key!r}: {number!r} is not a PCI address and a number",
                'write it like "0000:1b:00.0": 1',
            ) from error
    return ids


def parse_partitions(data: dict[str, Any] | None) -> dict[int, tuple[int, ...]]:
    """Return the GPU physical ids of each partition by its id, from plain data. Raises DomainError for an invalid one.

    A partition with a GPU that is listed twice, or without one, is invalid.
    """
    partitions = {}
    for key, members in (data or {}).items():
        try:
            number = values.integer(
                int(key) if isinstance(key, str) and settings.MODULE_ID.fullmatch(key) else key, 0, settings.DEVICES_MAX
            )
            ids = [values.integer(member, 0, settings.DEVICES_MAX) for member in values.items(members)]
            if not ids or len(set(ids)) < len(ids):
                raise InvalidValueError("it has no GPU, or one twice")
        except InvalidValueError as error:
            raise DomainError(
                f"gpu_partitions: {key!r}: {members!r:.80} is not a partition: {error.cause}",
                'write it like "2": [1, 2, 3, 4], as fmpm -l lists it',
            ) from error
        partitions[number] = tuple(sorted(ids))
    return partitions


def _unique(names: Any) -> None:
    seen = set()
    for name, label in names:
        if name in seen:
            raise DomainError("listed twice", "give each its own name", domain=label)
        seen.add(name)


def _spec(data: dict[str, Any]) -> DomainSpec:
    if not isinstance(data, dict):
        raise DomainError(f"{data!r:.80} is not a virtual machine", "write a dictionary of settings for each")
    requested_name = data.get("name")
    name = (
        requested_name
        if isinstance(requested_name, str) and settings.NAME_PATTERN.fullmatch(requested_name)
        else repr(requested_name)
    )
    spec: DomainSpec = _load(DomainSpec, Settings(refusal(name), "", data))
    for check in TOGETHER:
        check(spec)
    return spec


def _load(kind: type, reader: Settings) -> Any:
    """Build a ``kind``, each setting by its own check, or as a part."""
    checks = {
        item.name: item.metadata[SETTING].check if SETTING in item.metadata else partial(_part, reader, item)
        for item in fields(kind)
    }
    return reader.load(kind, checks)


def _part(reader: Settings, item: Field[Any], data: Any) -> Any:
    annotation = str(item.type)
    if annotation.startswith("list"):
        return [_load(inner_kind(annotation), element) for element in reader.parts(item.name)]
    # Roles pass an empty dictionary for an optional setting that is left out.
    return None if annotation.endswith("None") and data == {} else _load(inner_kind(annotation), reader.part(item.name))


# The rules for combinations of settings, on any host.


def _bits_and_accelerator(spec: DomainSpec) -> None:
    if spec.accelerator == "qemu" and spec.physical_address_bits == "passthrough":
        raise DomainError(
            "physical_address_bits passthrough needs KVM, and accelerator is qemu",
            "use auto, off or a number",
            domain=spec.name,
        )


def _overlays(spec: DomainSpec) -> None:
    for disk in spec.disks:
        if disk.base is not None and (disk.format != "qcow2" or disk.is_block_device or disk.read_only):
            raise DomainError(
                f"disk {disk.path}: only a writable qcow2 file can be an overlay of a base image",
                "leave out base, or format and read_only",
                domain=spec.name,
            )
        if bool(disk.base_url) != bool(disk.base_checksum) or (disk.base_url and not disk.base):
            raise DomainError(
                f"disk {disk.path}: base, base_url and base_checksum are needed together",
                "give all three",
                domain=spec.name,
            )
        if disk.ssh_keys and (disk.base or disk.format != "raw" or disk.is_block_device or not disk.read_only):
            raise DomainError(
                f"disk {disk.path}: ssh_keys are for a file of their own",
                "give it format raw and read_only",
                domain=spec.name,
            )
        if disk.base is None and disk.size_mib:
            raise DomainError(
                f"disk {disk.path}: size_mib is only for a disk created from a base", "leave it out", domain=spec.name
            )


def _sources(spec: DomainSpec) -> None:
    for interface in spec.interfaces:
        kind, source = interface.type, interface.source
        if kind == "user":
            if source is not None:
                raise DomainError("an interface of type user has no source", "leave it out", domain=spec.name)
        elif source is None:
            raise DomainError(
                f"an interface of type {kind} needs a source: the {kind}'s name", "give source", domain=spec.name
            )
        elif kind == "bridge" and not settings.BRIDGE.fullmatch(source):
            raise DomainError(
                f"{source!r} is not a valid bridge name",
                "use at most 15 letters, digits, '_', '.', '-'",
                domain=spec.name,
            )


def _tuning(spec: DomainSpec) -> None:
    for disk in spec.disks:
        # QEMU block/file-posix.c: "aio=native was specified, but it requires cache.direct=on".
        if disk.tuning.get("io") == "native" and disk.tuning.get("cache") not in ("none", "directsync"):
            raise DomainError(
                f"disk {disk.path}: io native needs cache none or directsync",
                "set cache to one of these",
                domain=spec.name,
            )
    for interface in spec.interfaces:
        if interface.type == "user" and interface.queues > 1:
            raise DomainError("an interface of type user has one queue", "leave queues out", domain=spec.name)
    if spec.kvm_dedicated and not spec.pin_cpus:
        # Linux Documentation/virt/kvm/x86/cpuid.rst, KVM_HINTS_REALTIME: "vCPUs are never preempted".
        raise DomainError("kvm_dedicated needs CPUs of its own", "leave pin_cpus at true", domain=spec.name)
    if spec.kvm_dedicated and spec.accelerator == "qemu":
        raise DomainError("kvm_dedicated needs KVM, and accelerator is qemu", "leave it out", domain=spec.name)


TOGETHER = (_bits_and_accelerator, _overlays, _sources, _tuning)
