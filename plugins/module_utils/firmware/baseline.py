# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The variable ``node_bmc_baselines``: BIOS settings and firmware versions by hardware model. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError

VARIABLE = "node_bmc_baselines"
# The key for nodes whose BMC names no model.
NO_MODEL = "unknown"
SHA256 = re.compile(r"[0-9a-f]{64}")

# What a BIOS attribute can have: DMTF DSP0268, AttributeRegistry, property Type.
AttributeValue = Union[str, int, bool]


class BaselineError(SailloftError):
    """A baseline that is not possible: its form, or an image that is not the one it names."""


@dataclass(frozen=True)
class WantedVersion:
    """The version of one firmware. ``name`` is the Id, SoftwareId or Name of its entry in FirmwareInventory.

    ``url`` and ``sha256`` are the image that brings it; ``targets`` replaces the entry as the target of the update.
    """

    name: str
    version: str
    url: str = ""
    sha256: str = ""
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Baseline:
    """The baseline of a model: BIOS attributes by name, and firmware."""

    bios: dict[str, AttributeValue] = field(default_factory=dict)
    firmware: tuple[WantedVersion, ...] = ()


def read(data: Any, node: str) -> dict[str, Baseline]:
    """Return the baselines of a node by model. Raises BaselineError."""
    models = Settings(BaselineError, f"{node}: {VARIABLE}", data)
    return {str(model): _baseline(models.part(model)) for model in models.data}


def _baseline(settings: Settings) -> Baseline:
    settings.only("bios", "firmware")
    bios, firmware = settings.part("bios"), settings.part("firmware")
    return Baseline(
        {name: bios.value(name, _attribute) for name in bios.data},
        tuple(_version(name, firmware.part(name)) for name in firmware.data),
    )


def _attribute(value: Any) -> AttributeValue:
    if isinstance(value, (bool, int)):
        return value
    # An empty text is the value of attributes such as AdminPhone.
    return value if value == "" else values.text(value)


def _version(name: str, settings: Settings) -> WantedVersion:
    checks = {"version": values.text, "url": _url, "sha256": _sha256, "targets": _targets}
    wanted: WantedVersion = settings.load(WantedVersion, checks, name=name)
    if bool(wanted.url) != bool(wanted.sha256):
        raise settings.refuse("it has only one of url and sha256", "give both, or neither to compare the version only")
    return wanted


def _url(value: Any) -> str:
    url = values.text(value)
    if not re.match(r"https?://[^/@]+/", url):
        raise InvalidValueError(
            f"{url!r} is no URL of a file", "write http://HOST/FILE or https://, without an account"
        )
    return url


def _sha256(value: Any) -> str:
    if not SHA256.fullmatch(str(value)):
        raise InvalidValueError(f"{value!r} is no SHA-256", "write the 64 digits that sha256sum prints")
    return str(value)


def _targets(value: Any) -> tuple[str, ...]:
    return tuple(values.text(target) for target in values.items(value))
