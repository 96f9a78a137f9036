# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a node's BIOS settings and firmware versions over Redfish beside its baseline, and set those that differ.

Sources: DMTF DSP0266 (settings resources, task monitors), DSP0268 (Bios, AttributeRegistry, MessageRegistryFile,
SoftwareInventory). What is sent to a settings resource has an effect at the node's next restart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware import attributes, updates
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import (
    NO_MODEL,
    Baseline,
    WantedVersion,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import (
    NOT_APPLIED,
    NodeFirmware,
    ShownSetting,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError, BootBmc

ROOT = "/redfish/v1"
POLL_S = 5.0


@dataclass
class Registries:
    """The attribute registries that were read, for nodes with the same model, BIOS and registry: one has megabytes."""

    known: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class BaselineBmc:
    """A node's BMC and its baseline, through a connection of sushy."""

    def __init__(self, bmc: BootBmc, baselines: Mapping[str, Baseline], registries: Registries) -> None:
        """Find the system and its model. Raises BmcError, also where no baseline is for the model."""
        self.bmc = bmc
        self.registries = registries
        if bmc.type != "redfish":
            raise BmcError("IPMI shows neither BIOS settings nor firmware versions")
        with bmc_redfish.errors_of_bmc():
            self.connection = bmc_redfish.connect(bmc)
            self.system = bmc_redfish.find_system(self.connection, bmc).json
        self.model = str(self.system.get("Model") or "").strip() or NO_MODEL
        if self.model not in baselines:
            raise BmcError(f"its model is {self.model!r}, for which node_bmc_baselines has no baseline")
        self.baseline = baselines[self.model]

    def read(self) -> NodeFirmware:
        """Return what the BMC shows. Raises BmcError."""
        with bmc_redfish.errors_of_bmc():
            bios, refused, notes = self._bios() if self.baseline.bios else ([], [], [])
            firmware = self._firmware() if self.baseline.firmware else []
        return NodeFirmware(self.model, (*bios, *firmware), refused=tuple(refused), notes=tuple(notes))

    def read_back(self, kinds: Collection[str], limit_s: float) -> NodeFirmware:
        """Return what the BMC shows after a restart, as soon as these kinds are as wanted, or at the time limit's end.

        What differs then was accepted before the restart, and its reason says so. A BMC that does not answer is asked
        again. Raises BmcError.
        """
        end = time.monotonic() + limit_s
        while True:
            try:
                node = self.read()
                if not node.to_set(kinds):
                    return node
            except BmcError:
                if time.monotonic() >= end:
                    raise
            else:
                if time.monotonic() >= end:
                    break
            time.sleep(min(POLL_S, max(0.0, end - time.monotonic())))
        with bmc_redfish.errors_of_bmc():
            messages = self._messages() if self.baseline.bios else ""
        settings = [
            replace(setting, reason=f"{NOT_APPLIED}{messages if setting.kind == 'bios' else ''}")
            if setting in node.to_set(kinds)
            else setting
            for setting in node.settings
        ]
        return replace(node, settings=tuple(settings))

    def set(self, kinds: Collection[str], images: updates.Images, limit_s: float) -> NodeFirmware:
        """Set what differs of these kinds, and return what the BMC shows then. Raises BmcError.

        ``limit_s``: for the tasks of each update.
        """
        to_send = self.read().to_send(kinds)
        bios = {setting.name: setting.wanted for setting in to_send if setting.kind == "bios"}
        names = {setting.name for setting in to_send if setting.kind == "firmware"}
        with bmc_redfish.errors_of_bmc():
            # Updates first: those of some BMCs drop BIOS settings that wait for a restart.
            for wanted in self.baseline.firmware:
                if wanted.name in names:
                    path = self._entry(wanted).get("@odata.id")
                    updates.update(self.connection, self.bmc, wanted, path, images, limit_s)
            if bios:
                self._set_bios(bios)
        return self.read()

    def _get(self, path: str) -> dict[str, Any]:
        document = self.connection.get(path).json()
        if not isinstance(document, dict):
            raise BmcError(f"its answer is not Redfish ({path} is no object)")
        return document

    def _link(self, document: Mapping[str, Any], name: str) -> str:
        path = (document.get(name) or {}).get("@odata.id")
        if not path:
            raise BmcError(f"{document.get('@odata.id', 'it')} has no {name}")
        return str(path)

    def _bios(self) -> tuple[list[ShownSetting], list[str], list[str]]:
        """Return the BIOS attributes of the baseline, the values that cannot be set, and notes."""
        bios = self._get(self._link(self.system, "Bios"))
        shown = bios.get("Attributes") or {}
        path = _settings_path(bios)
        pending = (self._get(path).get("Attributes") or {}) if path else {}
        upcoming = {name: value for name, value in pending.items() if value != shown.get(name)}
        settings = [
            ShownSetting("bios", name, value, shown.get(name), upcoming.get(name))
            for name, value in self.baseline.bios.items()
        ]
        if all(setting.holds for setting in settings):
            return settings, [], []
        registry = self._registry(str(bios.get("AttributeRegistry") or ""))
        wanted = {setting.name: setting.wanted for setting in settings if not setting.holds}
        refused = attributes.refusals(wanted, shown, registry)
        settings = [replace(setting, reason=refused.get(setting.name, "")) for setting in settings]
        notes = [] if registry else ["the BMC has no attribute registry: of values only the type is checked"]
        return settings, [f"{name}: {cause}" for name, cause in refused.items()], notes

    def _registry(self, name: str) -> Any:
        """Return the attribute registry of this name, None if the BMC has none."""
        key = (self.model, str(self.system.get("BiosVersion")), name)
        # One node reads it, and the others wait for it.
        with self.registries.lock:
            if key not in self.registries.known:
                self.registries.known[key] = next(self._registry_documents(name), None) if name else None
            return self.registries.known[key]

    def _registry_documents(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the registries that the BMC has under this name. Some list it under another one than its Id."""
        paths = [str(member.get("@odata.id")) for member in self._get(f"{ROOT}/Registries").get("Members") or []]
        likely = [path for path in paths if "attributeregistry" in path.lower()]
        for path in sorted(likely, key=lambda path: not path.rstrip("/").endswith(name)):
            listed = self._get(path)
            for place in sorted(listed.get("Location") or [], key=lambda place: place.get("Language") != "en")[:1]:
                document = self._get(str(place.get("Uri")))
                if name in (document.get("Id"), listed.get("Id"), listed.get("Registry")):
                    yield document

    def _set_bios(self, values: Mapping[str, Any]) -> None:
        """Send attributes to the settings resource, for the next restart."""
        bios = self._get(self._link(self.system, "Bios"))
        path = _settings_path(bios)
        if not path:
            raise BmcError("its BIOS settings cannot be set: Bios has no @Redfish.Settings")
        body: dict[str, Any] = {"Attributes": dict(values)}
        if "OnReset" in ((bios.get("@Redfish.Settings") or {}).get("SupportedApplyTimes") or []):
            body["@Redfish.SettingsApplyTime"] = {
                "@odata.type": "#Settings.v1_0_0.PreferredApplyTime",
                "ApplyTime": "OnReset",
            }
        etag = self.connection.get(path).headers.get("ETag")
        self.connection.patch(path, data=body, etag=etag)

    def _messages(self) -> str:
        """Return what the BMC says of the settings that it applied last: ": Base.1.0.SettingsFailed (PROPERTY)"."""
        bios = self._get(self._link(self.system, "Bios"))
        texts = [
            f"{message.get('MessageId')} ({', '.join(map(str, message.get('RelatedProperties') or []))})"
            for message in (bios.get("@Redfish.Settings") or {}).get("Messages") or []
        ]
        return f": {'; '.join(texts)}" if texts else ""

    def _firmware(self) -> list[ShownSetting]:
        settings = []
        for wanted in self.baseline.firmware:
            try:
                entry = self._entry(wanted)
            except BmcError as error:
                settings.append(ShownSetting("firmware", wanted.name, wanted.version, reason=str(error)))
                continue
            seen = str(entry["Version"]) if entry.get("Version") is not None else None
            reason = "" if seen else "the BMC shows no version of it"
            if seen not in (None, wanted.version) and not wanted.url:
                reason = "the baseline has no url and sha256 of an image"
            settings.append(ShownSetting("firmware", wanted.name, wanted.version, seen, reason=reason))
        return settings

    def _entry(self, wanted: WantedVersion) -> dict[str, Any]:
        """Return the document of a firmware in FirmwareInventory, by Id, or else by SoftwareId or Name."""
        service = self._get(self._link(self._get(f"{ROOT}/"), "UpdateService"))
        paths = [
            str(member.get("@odata.id"))
            for member in self._get(self._link(service, "FirmwareInventory")).get("Members") or []
        ]
        for path in paths:
            if path.rstrip("/").rsplit("/", 1)[-1] == wanted.name:
                return self._get(path)
        entries = [self._get(path) for path in paths]
        same_name = [entry for entry in entries if wanted.name in (entry.get("SoftwareId"), entry.get("Name"))]
        if len(same_name) == 1:
            return same_name[0]
        if same_name:
            ids = ", ".join(str(entry.get("Id")) for entry in same_name)
            raise BmcError(f"the BMC has it more than once: name one of {ids}")
        raise BmcError(f"the BMC has no firmware of this name, but {', '.join(str(e.get('Id')) for e in entries)}")


def _settings_path(bios: Mapping[str, Any]) -> str:
    return str(((bios.get("@Redfish.Settings") or {}).get("SettingsObject") or {}).get("@odata.id") or "")
