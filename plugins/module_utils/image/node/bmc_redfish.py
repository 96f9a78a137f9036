# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Restarts and fencing over Redfish with sushy, which knows entity tags, settings resources and BMCs not ready yet.

community.general's redfish_command cannot write to a settings resource, without which BMCs of AMI do not restart.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import (
    BmcError,
    BootBmc,
    RequestedError,
    wait_for_override,
    wait_for_power,
)

try:
    import sushy
    from sushy import auth, connector, exceptions
except ImportError:
    sushy = None

# Without a handler Python would print its warnings to the error output.
logging.getLogger("sushy").addHandler(logging.NullHandler())

MODE = "BootSourceOverrideMode"
ENABLED = "BootSourceOverrideEnabled"
TARGET = "BootSourceOverrideTarget"
NETWORK_TARGETS = ("Pxe", "UefiHttp")


@dataclass(frozen=True)
class Quirk:
    """A fault of a maker's BMCs. ``maker`` is a part of the system's Manufacturer, in lower case."""

    maker: str
    always_sends_mode: bool
    source: str


# The boot mode is sent only where the BMC shows another one: HPE's is read-only (community.general issue 3509), Dell's
# starts a job of minutes (ironcore-dev/metal-operator issue 81). Makers whose BMCs need something else have a row here.
# AMI's settings resource and the missing target Pxe are recognised by what the BMC shows.
QUIRKS = (Quirk("supermicro", True, "https://github.com/DMTF/Redfishtool/pull/106: a mode that is not sent is reset"),)


def restart(bmc: BootBmc) -> None:
    """Restart the BMC's system from the network, or start it if it is off. Raises BmcError."""
    with errors_of_bmc():
        connection = connect(bmc)
        system = find_system(connection, bmc)
        set_next_boot(connection, system, bmc)
        reset(system, bmc.power_timeout_s)


def fence(bmc: BootBmc, check: bool) -> str:
    """Power the BMC's system off, read back that it is, and return the power before. Raises BmcError.

    With ``check`` the power is only read.
    """
    with errors_of_bmc():
        system = find_system(connect(bmc), bmc)
    old_power = power(system)
    if old_power == "off" or check:
        return old_power
    with errors_of_bmc():
        if sushy.ResetType.FORCE_OFF not in system.get_allowed_reset_system_values():
            raise BmcError("it does not offer ForceOff")
        system.reset_system(sushy.ResetType.FORCE_OFF)
    wait_for_power(lambda: power(system), "off", bmc.power_timeout_s)
    return old_power


@contextmanager
def errors_of_bmc() -> Iterator[None]:
    """Raise sushy's errors, and those of answers that are no Redfish, as BmcError."""
    if sushy is None:
        raise BmcError("No module named sushy")
    try:
        yield
    except exceptions.SushyError as error:
        raise BmcError(cause_of(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BmcError(f"its answer is not Redfish ({error})") from error


def cause_of(error: Exception) -> str:
    """Return the text of an error of sushy, without the BMC's extended information."""
    if isinstance(error, exceptions.ConnectionError):
        return connection_cause(error)
    return re.sub(r" Extended information: .*", "", str(error), flags=re.DOTALL).rstrip(".")


def connection_cause(error: Exception) -> str:
    """Return why there was no connection: requests wraps the cause into several exceptions, whose texts contain it."""
    cause = re.search(r"certificate verify failed[^('\"]*|\[Errno -?\d+\] [^'\")]*|timed out", str(error))
    text = cause.group().strip() if cause else str(error)
    return text if "certificate" in text else f"it cannot be reached: {text}"


def trusted_certificates(bmc: BootBmc) -> bool | str:
    """Return the file or directory of trusted certificates: ``ca``, or the system's. False: none is verified."""
    if not bmc.verify_tls:
        return False
    paths = ssl.get_default_verify_paths()
    return bmc.ca or paths.cafile or paths.capath or True


def connect(bmc: BootBmc) -> Any:
    """Return a sushy Connector, which asks once again where the BMC is busy."""
    return connector.Connector(
        f"https://{bmc.address}",
        verify=trusted_certificates(bmc),
        server_side_retries=1,
        server_side_retries_delay=2,
        default_request_timeout=bmc.timeout_s,
    )


def find_system(connection: Any, bmc: BootBmc) -> Any:
    """Return the node's sushy System: the named one, or else the only one. Raises BmcError."""
    # A BMC has few sessions, and keeps those of a killed run open.
    login = auth.BasicAuth(bmc.username, bmc.password)
    root = sushy.Sushy(f"https://{bmc.address}", auth=login, connector=connection)
    paths = root.get_system_collection().members_identities
    same_id = [path for path in paths if bmc.system and path.rstrip("/").rsplit("/", 1)[-1] == bmc.system]
    systems = [root.get_system(path) for path in same_id or paths]
    matches = [system for system in systems if bmc.system in (None, "", system.identity)]
    if len(matches) != 1:
        names = ", ".join(sorted(str(system.identity) for system in systems))
        raise BmcError(f"it has the systems {names}; node_boot_bmc.system names {bmc.system or 'none'}")
    return matches[0]


def settings_path(system: Any) -> str | None:
    """Return the path of the system's settings resource, which holds what the next boot will use on BMCs of AMI."""
    path = system.json.get("@Redfish.Settings", {}).get("SettingsObject", {}).get("@odata.id")
    return str(path) if path else None


def boot_properties(connection: Any, system: Any) -> dict[str, Any]:
    """Return the property Boot as the BMC shows it now, with what its settings resource changes in it."""
    system.refresh(force=True)
    path = settings_path(system)
    pending = connection.get(path).json() if path else {}
    return {
        name: value
        for body in (system.json, pending)
        for name, value in (body.get("Boot") or {}).items()
        if value is not None
    }


def boot_target(bmc: BootBmc, boot: dict[str, Any]) -> str:
    """Return the target for a network boot: the requested one, or the first that the BMC offers. Raises BmcError."""
    offered = boot.get(f"{TARGET}@Redfish.AllowableValues") or NETWORK_TARGETS
    # UEFI alone has HTTP boot.
    in_order = NETWORK_TARGETS[: 2 if bmc.boot_mode == "UEFI" and bmc.http_boot else 1]
    possible = [bmc.boot_target] if bmc.boot_target else in_order
    target = next((name for name in possible if name in offered), None)
    if target is None:
        unserved = "UefiHttp" in offered and not bmc.http_boot
        reason = "; the boot servers answer no HTTP boot (boot_server_dhcp: proxy)" if unserved else ""
        raise BmcError(f"it does not offer {' or '.join(possible)} as the next boot, but {', '.join(offered)}{reason}")
    return target


def set_next_boot(connection: Any, system: Any, bmc: BootBmc) -> None:
    """Set a one-time network boot, and read it back. Raises BmcError."""
    boot = boot_properties(connection, system)
    target = boot_target(bmc, boot)
    maker = str(system.json.get("Manufacturer") or "").lower()
    always = any(quirk.always_sends_mode for quirk in QUIRKS if quirk.maker in maker)
    mode = bmc.boot_mode if always or boot.get(MODE, bmc.boot_mode) != bmc.boot_mode else None
    try:
        system.set_system_boot_options(
            sushy.BootSource(target),
            sushy.BootSourceOverrideEnabled.ONCE,
            mode and sushy.BootSourceOverrideMode(mode),
        )
    except exceptions.HTTPError as error:
        path = settings_path(system)
        if isinstance(error, exceptions.AccessError) or not path:
            raise
        # sushy writes to this resource only what it shows.
        override = {ENABLED: "Once", TARGET: target, **({MODE: mode} if mode else {})}
        answer = connection.get(path)
        connection.patch(path, data={"Boot": override}, etag=answer.headers.get("ETag"))

    def shown() -> str:
        now = boot_properties(connection, system)
        # A BMC that never shows the override is judged by the node's boot alone.
        return target if ENABLED not in {**boot, **now} else override_text(now)

    wait_for_override(shown, target)


def override_text(boot: dict[str, Any]) -> str:
    """Return the target of the next boot, or "no override"."""
    return "no override" if boot.get(ENABLED, "Disabled") == "Disabled" else str(boot.get(TARGET))


def power(system: Any) -> str:
    """Return the power as the BMC shows it now: "on", "off", "poweringoff" and so on; "unknown" if it shows none."""
    with errors_of_bmc():
        system.refresh(force=True)
        return str(system.json.get("PowerState") or "unknown").lower()


def reset(system: Any, limit_s: int) -> None:
    """Restart the system, or start it if it is off, with what the BMC offers for it. Raises BmcError.

    The power is read after each command, at most ``limit_s``: On has no effect while the system is still on. A forced
    restart and a power cycle may never be seen as off, so off and on comes before the latter.
    """
    offered = system.get_allowed_reset_system_values()
    kind = sushy.ResetType
    if system.power_state == sushy.PowerState.OFF:
        choices: list[tuple[Any, ...]] = [(kind.ON,), (kind.FORCE_ON,)]
    else:
        choices = [(kind.FORCE_RESTART,), (kind.FORCE_OFF, kind.ON), (kind.POWER_CYCLE,)]
    steps = next((choice for choice in choices if set(choice) <= offered), None)
    if steps is None:
        raise BmcError(f"it offers no restart, but {', '.join(sorted(reset_type.value for reset_type in offered))}")
    for step in steps:
        try:
            system.reset_system(step)
        except (exceptions.ConnectionError, exceptions.ServerSideError) as error:
            # A BMC that breaks off, or says that it is busy, may have done it.
            raise RequestedError(f"it was asked for {step.value}: {cause_of(error)}") from error
        wait_for_power(lambda: power(system), "off" if step == kind.FORCE_OFF else "on", limit_s)
