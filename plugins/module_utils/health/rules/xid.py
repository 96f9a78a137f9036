# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's catalogue of Xids as rules: what each asks for; and SXids, the errors of NVSwitches. Pure.

The actions are the immediate ones of NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors, October 2025). What an
application causes never takes a node out of service. An Xid that the catalogue does not have, or for which it names no
action, is for a person.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    APPLICATION,
    CONFIGURATION,
    HARDWARE,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import event

SOURCE, SXID_SOURCE = "NVIDIA Xid catalogue", "NVIDIA Fabric Manager User Guide"
UNKNOWN, CONTAINED = "xid_unknown", "xid_48_contained"

_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_DECODERS = (68, 83, 84, 88, 89, 96, 97, 98)
_JPEG = (82, *range(99, 106))
_OPTICAL_FLOW = (86, 139)
_ENGINES = {
    code: f"{name} {number}: exception"
    for codes, name in (
        (_COPY_ENGINES, "copy engine"),
        (_DECODERS, "video decoder"),
        (_JPEG, "JPEG engine"),
        (_OPTICAL_FLOW, "optical flow engine"),
    )
    for number, code in enumerate(codes)
}
_RESTART = {
    **_ENGINES,
    8: "GPU stopped processing",
    11: "bad push buffer",
    13: "graphics engine exception",
    25: "illegal push buffer",
    31: "GPU memory page fault",
    32: "corrupted push buffer",
    60: "video processor exception",
    69: "graphics engine class error",
    80: "corrupted data sent to the GPU",
}
_IGNORE_OF_APPLICATIONS = {
    14: "channel error",
    37: "driver firmware error",
    38: "driver firmware timeout",
    43: "GPU stopped processing",
    44: "graphics engine fault at a context switch",
    # The workflow: follow the Xid before it; alone it may mean that Fabric Manager must be restarted.
    45: "work removed after another error",
    66: "illegal access by the driver",
    67: "illegal access by the driver",
    106: "test message",
    107: "test message",
    108: "NVLink translation error at the other end",
    137: "NVLink privilege error",
    141: "CUDA fast path error",
    152: "DLA memory error",
    153: "DLA timeout",
}
_IGNORE_OF_PARTS = {
    63: "row remapped or page retired",
    92: "many single-bit errors",
    93: "InfoROM written too often",
    121: "C2C error",
    157: "retirement of a resource failed",
    160: "memory channel retired",
    161: "retirement of a memory channel failed",
}
_RESET = {
    46: "GPU stopped processing",
    # The workflow of a double-bit error; with 94 at the same time it is CONTAINED.
    48: "double-bit memory error",
    62: "micro-controller halted",
    64: "row remap or page retirement failed",
    74: "NVLink error",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP does not answer",
    120: "GSP error",
    136: "NVLink training failed",
    140: "unrecovered memory error",
    143: "GPU initialization failed",
    155: "NVLink error defined by software",
    156: "resource retired",
    158: "GPU timeout",
}
_PERSON = {
    54: "auxiliary power is not connected",
    142: "video encoder 3: exception",
    159: "error of coherent memory: check UVM",
    162: "power smoothing works again",
    163: "power smoothing stopped",
    164: "power smoothing near its end of life",
    165: "power smoothing at its end of life",
    166: "NVLink traffic before encryption",
    167: "PCIe timeout",
    168: "less GPU memory",
    169: "security processor halted",
    170: "interrupt in confidential mode",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}
NVLINK5 = {144: "SAW", 145: "RLW", 146: "TLW", 147: "TREX", 148: "NVLPW", 149: "NETIR", 150: "MSE"}
# The new recovery action of Xid 154 (NVML, nvmlDeviceGpuRecoveryAction_t), its check, and what it asks for.
RECOVERY = {
    0: ("none", "note"),
    1: ("reset", "reset_gpu"),
    2: ("reboot", "reboot"),
    3: ("drain_p2p", "drain"),
    4: ("drain_and_reset", "reset_gpu"),
}


def _group(titles: dict[int, str], action: str, runbook: str, layer: str = HARDWARE) -> tuple[Rule, ...]:
    return tuple(
        event(f"xid_{code}", f"Xid {code}: {title}", action, SOURCE, runbook, layer) for code, title in titles.items()
    )


RULES = (
    *_group(_RESTART, "restart_application", "xid-application", APPLICATION),
    # A memory error that only its application had to pay for: the part remaps the row, the node stays in service.
    *_group({94: "contained memory error"}, "restart_application", "gpu-row-remap"),
    *_group(_IGNORE_OF_APPLICATIONS, "note", "xid-application", APPLICATION),
    *_group(_IGNORE_OF_PARTS, "note", "xid-note"),
    *_group(_RESET, "reset_gpu", "xid-reset-gpu"),
    *_group({79: "GPU has fallen off the bus"}, "reboot", "gpu-lost"),
    *_group({151: "key rotation error"}, "restart_vm", "xid-restart-vm"),
    *_group({78: "vGPU did not start: update its software"}, "configure", "xid-configure", CONFIGURATION),
    *_group(_PERSON, "person", "xid-person"),
    event(UNKNOWN, "Xid without an action in NVIDIA's catalogue", "person", SOURCE, "xid-person"),
    event(CONTAINED, "contained double-bit error: row remap pending", "reset_gpu", SOURCE, "gpu-row-remap"),
    *(
        rule
        for code, unit in NVLINK5.items()
        for rule in (
            event(
                f"xid_{code}_fatal", f"Xid {code}: fatal NVLink error ({unit})", "reset_gpu", SOURCE, "nvlink-errors"
            ),
            event(f"xid_{code}_nonfatal", f"Xid {code}: NVLink error ({unit})", "note", SOURCE, "nvlink-errors"),
            event(f"xid_{code}_unknown", f"Xid {code}: NVLink error ({unit})", "person", SOURCE, "nvlink-errors"),
        )
    ),
    # Ended by the host or by the user: the catalogue ignores it.
    event("xid_149_ended", "Xid 149: NVLink ended by the host", "note", SOURCE, "nvlink-errors", CONFIGURATION),
    *(
        event(
            f"xid_154_{name}", f"Xid 154: recovery action is now: {name.replace('_', ' ')}", action, SOURCE, "gpu-reset"
        )
        for name, action in RECOVERY.values()
    ),
    event("xid_154_unknown", "Xid 154: unknown recovery action", "person", SOURCE, "gpu-reset"),
    event("sxid_fatal", "SXid: fatal error of an NVSwitch", "reboot", SXID_SOURCE, "nvswitch"),
    event("sxid_non_fatal", "SXid: error of an NVSwitch that is not fatal", "note", SXID_SOURCE, "nvswitch"),
)
CHECKS = frozenset(rule.check for rule in RULES)
