# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's health in plain data: what readers measure, how a rule judges it, and what the node is expected to have.

A round goes one way: readers return measurements and events; the rules judge each against a limit or against what is
expected, and give results; the latch turns results into faults that stay until their cause is gone. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

PASS, FAIL, NOT_MEASURED = "pass", "fail", "not measured"
VERDICTS = (PASS, FAIL, NOT_MEASURED)
# The layer of a cause: a part to repair, a setting to correct, or a program of the user. Only a hardware fault may lead
# to a repair, and an application's never takes a node out of service.
HARDWARE, CONFIGURATION, APPLICATION = "hardware", "configuration", "application"
# What a fault asks for, the mildest first. Several faults of a node ask for the last of theirs.
ACTIONS = ("note", "restart_application", "watch", "configure", "drain", "reset_gpu", "restart_vm", "reboot", "person")

# The kinds of machine. A hypervisor's guests have its GPUs, so that it has no driver of theirs.
BARE_METAL, HYPERVISOR, GUEST, IMAGE = "bare_metal", "hypervisor", "guest", "image"
MACHINES = (BARE_METAL, HYPERVISOR, GUEST, IMAGE)

# What a stored text cannot have (common/stored.py), line ends, because a message is one line, and marks that turn the
# direction of the text behind them.
NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
MOST_CHARACTERS = 500


def clean(text: str) -> str:
    """Return a text of a tool, a log or a person as one line that can be stored and printed."""
    text = NO_TEXT.sub(" ", text[: 2 * MOST_CHARACTERS]).strip()
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


@dataclass(frozen=True)
class Moment:
    """A time by the node's clock, which may jump, and since the boot, which can only be compared within that boot."""

    unix_s: float
    boot_id: str
    boot_s: float


@dataclass(frozen=True, order=True)
class Place:
    """A part of a node that can be sick. ``name`` is what the kernel calls it: a PCI address, an interface, a disk."""

    # "node", "gpu", "nvswitch", "nic", "port" (of a NIC), "bridge" (PCIe), "nvme", "memory", "mount", "unit" or "bmc"
    kind: str
    name: str = ""  # "0000:4b:00.0", "mlx5_4/1", "eth0", "nvme0", "mc0/P0_DIMM_B", "/"; "" for the node itself

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True)
class Measurement:
    """One value of one check at one place, from one reader. ``value`` None: not measured, and ``reason`` says why.

    ``is_counter``: the value only increases until the part or the node is reset; its increase is judged, not the value.
    ``saturation``: the value at which such a counter stops (255 of an 8-bit one): from there no increase can be seen.
    ``context``: facts that the rule needs, as read: {"pstate": "P8"} of a link's speed.
    ``is_occasional``: that it is not measured is no fault of the checker: the device sleeps, nobody enabled the source.
    """

    check: str  # the name of a rule: "pcie_width"
    place: Place
    value: int | float | str | bool | None
    source: str  # where it was read: "nvidia-smi -q -x: pci/pci_gpu_link_info/link_widths/current_link_width"
    reason: str = ""
    is_counter: bool = False
    saturation: int | None = None
    context: dict[str, str] = field(default_factory=dict)
    is_occasional: bool = False


@dataclass(frozen=True)
class Event:
    """One line of a log that reports something once: an Xid, an SXid, an AER error, a lost disk.

    ``identity`` is the same for lines that report one event (several processes' lines of one Xid).
    """

    check: str  # the name of a rule: "xid_79"
    place: Place
    text: str  # the line, without its prefix
    source: str  # "/dev/kmsg"
    identity: str
    boot_id: str = ""
    sequence: int = 0  # the kernel's number of the line in this boot
    seconds: float = 0.0  # since the boot


@dataclass(frozen=True)
class Reading:
    """All that one reader found in one round. ``error``: why it measured nothing at all (its deadline, no program).

    ``kept``: what the reader gets back in its next round, as ``Node.kept``: its place in a log. It is saved with the
    faults of this reading or not at all, so that no event is lost or counted twice. ``is_deep``: of a deep check, whose
    pass also ends what other readers found.
    """

    reader: str  # the reader's name: "nvidia_smi"
    measurements: tuple[Measurement, ...] = ()
    events: tuple[Event, ...] = ()
    error: str = ""
    seconds: float = 0.0  # how long it took
    kept: dict[str, str] = field(default_factory=dict)
    is_deep: bool = False


@dataclass(frozen=True)
class Result:
    """The verdict of one check at one place in one round."""

    check: str
    place: Place
    verdict: str  # one of VERDICTS
    seen: str = ""  # "x8", in words
    expected: str = ""  # "x16"
    source: str = ""
    reason: str = ""  # why it was not measured, or what a reader of the verdict must know
    # The rule's window is not full yet: such a pass does not show that a cause is gone.
    is_partial: bool = False
    reader: str = ""
    is_occasional: bool = False  # of a measurement, or of a counter at its end


# Vendors of GPUs. One of unknown vendor counts as NVIDIA's.
NVIDIA, AMD = ("10de", ""), ("1002",)


@dataclass(frozen=True)
class ExpectedDevice:
    """A device that the node must have, from its topology, plan and blueprint."""

    address: str  # "0000:4b:00.0", as on this node
    kind: str  # "gpu", "nic", "nvme", "nvswitch", "bridge"
    name: str  # what people call it: "GPU 4", "NIC of rail 3"
    device_id: str = ""  # "10de:2330"
    link_speed_gt_s: float | None = None  # of the slot and the device together, at load
    link_width: int | None = None
    slot: str = ""  # as printed on the chassis
    serial_place: str = ""  # where the serial number is printed
    host_place: str = ""  # of a guest's device: "hv01, GPU 4, slot 7, 0000:9b:00.0"
    nvlinks: int | None = None  # of a GPU: how many must be active

    @property
    def vendor(self) -> str:
        """The vendor's PCI id, "" if unknown."""
        return self.device_id.partition(":")[0]


@dataclass(frozen=True)
class ExpectedPort:
    """A port of a NIC that must be up."""

    name: str  # "mlx5_4/1" of an RDMA device, "eth0" of an interface without one
    address: str = ""  # of its PCI function
    link_layer: str = ""  # "InfiniBand" or "Ethernet"
    rate_gbit_s: float | None = None
    peer: str = ""  # "leaf-3 Ethernet17", from the blueprint
    cable: str = ""  # the blueprint's name of the cable
    rail: int | None = None


@dataclass(frozen=True)
class CheckSetting:
    """A limit of a rule, or a disabled check, for this node: from the inventory's groups."""

    limit: float | None = None
    disabled: str = ""  # the reason for which this check is not made


@dataclass(frozen=True)
class Expected:
    """All that a node must have and do, made on the controller, so that a sick node never defines what is healthy."""

    host: str
    devices: tuple[ExpectedDevice, ...] = ()
    ports: tuple[ExpectedPort, ...] = ()
    memory_bytes: int | None = None
    processors: int | None = None
    # {"nvidia_driver": "550.163.01", "firmware 0000:4b:00.0": ...}
    versions: dict[str, str] = field(default_factory=dict)
    gpu_settings: dict[str, str] = field(default_factory=dict)  # {"persistence_mode": "Enabled", "ecc_mode": "Enabled"}
    # Rates by accept.yml, GB/s: "host_to_device_memcpy_ce 0000:4b:00.0" of a GPU, "all_reduce_perf" of the node.
    accepted: dict[str, float] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    units: tuple[str, ...] = ()  # systemd units that must be active
    needs_fabric_manager: bool = False
    settings: dict[str, CheckSetting] = field(default_factory=dict)  # by check
    machine: str = BARE_METAL  # one of MACHINES

    @property
    def runs_gpus(self) -> bool:
        """True if the node itself has the driver of its GPUs."""
        return self.machine != HYPERVISOR


# How a rule judges a value. The limit of those that compare numbers is the rule's, or what is expected at the place.
EQUAL = "equal"  # to what is expected at the place
AT_LEAST, AT_MOST = "at least", "at most"
INCREASE_AT_MOST = "increase at most"  # of a counter, in the rule's window
MEDIAN_AT_LEAST = "median at least"  # of the last samples, counted anew after a reset
NOT_TRUE = "not true"
EVENT = "event"  # each event is a fault


@dataclass(frozen=True)
class Rule:
    """The way in which one check is judged, and what its fault asks for."""

    check: str  # "pcie_width"
    title: str  # what a fault says: "PCIe link narrower than planned"
    layer: str  # HARDWARE, CONFIGURATION or APPLICATION
    comparison: str  # one of the above
    action: str  # one of ACTIONS
    source: str  # where the limit is from: "NVIDIA Xid catalogue", "arXiv 2407.05467, 2.3"
    runbook: str  # the section of docs/reference/runbooks.md: "pcie-link-degraded"
    limit: float | None = None
    unit: str = ""
    window_s: int = 0  # of INCREASE_AT_MOST
    samples: int = 0  # of MEDIAN_AT_LEAST
    # Only measured under load, or in a deep check: an idle node is not measured, which is no fault of the checker.
    is_occasional: bool = False
    expected: Callable[[Expected, Place], float | str | None] | None = None  # of the place; None: nothing is expected
