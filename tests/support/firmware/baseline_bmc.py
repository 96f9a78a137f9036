# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A BMC with BIOS settings and firmware, whose names and values are those of DMTF's mockup public-rackmount1.

What is set takes effect at ``restart()``, and an update at the end of its task.
"""

from __future__ import annotations

import json
from typing import Any

from redfish_bmc import PASSWORD, USER, RedfishBmc, collection

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/437XR1138R2"
BIOS, SETTINGS = f"{SYSTEM}/Bios", f"{SYSTEM}/Bios/Settings"
REGISTRY = "BiosAttributeRegistryP89.v1_0_0"
SERVICE, INVENTORY = f"{ROOT}/UpdateService", f"{ROOT}/UpdateService/FirmwareInventory"
TASK = f"{ROOT}/TaskService/Tasks/545"
ATTRIBUTES = {
    "AdminPhone": "",
    "EmbeddedSata": "Raid",
    "NicBoot1": "NetworkBoot",
    "NicBoot2": "Disabled",
    "ProcCoreDisable": 0,
    "ProcTurboMode": "Enabled",
}


def link(path: str) -> dict[str, str]:
    """Return a link."""
    return {"@odata.id": path}


def choice(name: str, *values: str, **more: Any) -> dict[str, Any]:
    """Return a registry's entry of an enumeration."""
    listed = [{"ValueName": value, "ValueDisplayName": value} for value in values]
    return {"AttributeName": name, "Type": "Enumeration", "Value": listed, **more}


ENTRIES = [
    {"AttributeName": "AdminPhone", "Type": "String", "MaxLength": 20},
    choice("EmbeddedSata", "Off", "Ata", "Ahci", "Raid"),
    choice("NicBoot1", "NetworkBoot", "Disabled"),
    choice("NicBoot2", "NetworkBoot", "Disabled", ReadOnly=True),
    {"AttributeName": "ProcCoreDisable", "Type": "Integer", "LowerBound": 0, "UpperBound": 8, "ScalarIncrement": 2},
    choice("ProcTurboMode", "Enabled", "Disabled"),
]


class BaselineServer(RedfishBmc):
    """A BMC whose ``sent`` has what was written to it.

    ``forgets``: attributes that its firmware does not apply. ``task``: the document of the task of an update;
    ``brings``: the versions that its end brings, by Id. ``pushes``: whether it takes images by push.
    """

    def __init__(self, folder: Any, pushes: bool = False) -> None:
        super().__init__(folder, {})
        self.sent: list[Any] = []
        self.forgets: set[str] = set()
        self.task: dict[str, Any] = {"TaskState": "Completed", "TaskStatus": "OK"}
        self.brings: dict[str, str] = {}
        action = {"#UpdateService.SimpleUpdate": {"target": f"{SERVICE}/Actions/SimpleUpdate"}}
        versions = {"BIOS": "P79 v1.45", "BMC": "1.45.455b66-rev4"}
        self.documents.update(
            {
                ROOT: {"Id": "Root", "Systems": link(f"{ROOT}/Systems"), "UpdateService": link(SERVICE)},
                f"{ROOT}/Systems": {"Name": "Systems", **collection(SYSTEM)},
                SYSTEM: {
                    "@odata.id": SYSTEM,
                    "Id": "437XR1138R2",
                    "Name": "Web",
                    "Model": "3500",
                    "Bios": link(BIOS),
                    # Which sushy 5.7, the last for Python 3.9, requires.
                    "Boot": {"BootSourceOverrideEnabled": "Disabled"},
                    "Actions": {"#ComputerSystem.Reset": {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset"}},
                },
                BIOS: {
                    "@odata.id": BIOS,
                    "AttributeRegistry": REGISTRY,
                    "Attributes": dict(ATTRIBUTES),
                    "@Redfish.Settings": {"SettingsObject": link(SETTINGS), "SupportedApplyTimes": ["OnReset"]},
                },
                SETTINGS: {"@odata.id": SETTINGS, "Attributes": {}},
                f"{ROOT}/Registries": collection(f"{ROOT}/Registries/Base.1.5.0", f"{ROOT}/Registries/{REGISTRY}"),
                f"{ROOT}/Registries/{REGISTRY}": {
                    "Id": REGISTRY,
                    "Location": [{"Language": "en", "Uri": f"{ROOT}/Registries/bios.json"}],
                },
                f"{ROOT}/Registries/bios.json": {"Id": REGISTRY, "RegistryEntries": {"Attributes": ENTRIES}},
                SERVICE: {
                    "@odata.id": SERVICE,
                    "FirmwareInventory": link(INVENTORY),
                    "Actions": action,
                    **({"MultipartHttpPushUri": "/push"} if pushes else {}),
                },
                INVENTORY: collection(*(f"{INVENTORY}/{name}" for name in versions)),
                **{
                    f"{INVENTORY}/{name}": {
                        "@odata.id": f"{INVENTORY}/{name}",
                        "Id": name,
                        "Name": f"Contoso {name} Firmware",
                        "Version": version,
                    }
                    for name, version in versions.items()
                },
            }
        )

    def change(self, path: str, kind: str, body: bytes) -> tuple[int, str]:
        if path == SETTINGS:
            self.sent.append(json.loads(body))
            self.documents[SETTINGS]["Attributes"].update(self.sent[-1]["Attributes"])
            return 200, ""
        self.sent.append(body if kind.startswith("multipart") else json.loads(body))
        self.documents[TASK] = self.task
        for name, version in self.brings.items():
            self.documents[f"{INVENTORY}/{name}"]["Version"] = version
        return 202, TASK

    def restart(self) -> None:
        """Apply what waits for a restart, and say what was not applied."""
        pending = self.documents[SETTINGS]["Attributes"]
        bios = self.documents[BIOS]
        bios["Attributes"].update({name: value for name, value in pending.items() if name not in self.forgets})
        bios["@Redfish.Settings"]["Messages"] = [
            {"MessageId": "Base.1.0.SettingsFailed", "RelatedProperties": [f"/Attributes/{name}"]}
            for name in sorted(self.forgets & pending.keys())
        ]
        self.documents[SETTINGS]["Attributes"] = {}

    def account(self, **changed: Any) -> dict[str, Any]:
        """Return node_boot_bmc."""
        return {
            "address": self.address,
            "username": USER,
            "password": PASSWORD,
            "ca": self.ca,
            "timeout_s": 5,
            **changed,
        }
