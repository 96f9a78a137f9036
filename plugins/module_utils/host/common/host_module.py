# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""End a module of a host; it is refused in an image and on hosts that cannot have GPU virtual machines."""

from __future__ import annotations

import os
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.architecture import unsupported_reason
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Cpu


def in_chroot() -> bool:
    """Return True if this is an image's root, where ``/sys`` and ``/proc`` are those of the build host.

    Uses the tests of Ansible (``ansible_is_chroot``): ``debian_chroot`` in the environment, or process 1 has another
    root. Ansible's last test, the inode number of the root, is left out: containers and many file systems have other
    numbers, and a false "yes" would refuse a live host.
    """
    if os.environ.get("debian_chroot"):  # noqa: SIM112 (so is its name)
        return True
    try:
        ours, first = os.stat("/"), os.stat("/proc/1/root/.")
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) != (first.st_dev, first.st_ino)


def finish_on_gpu_host(module: Any, system: System, ensure: Callable[[], Outcome], live: bool = True) -> None:
    """End a module as ``finish_on_host`` does, but refuse a host that cannot have GPU virtual machines."""

    def supported() -> Outcome:
        refuse_unsupported(module._name, system)
        return ensure()

    finish_on_host(module, supported, live)


def refuse_unsupported(module_name: str, system: System) -> None:
    """Raise HostError on a host of an architecture whose settings are not known."""
    reason = unsupported_reason(Cpu(architecture=system.machine()))
    if reason:
        raise HostError(f"{module_name}: {reason}", "nothing was changed; such a host can still be read and recorded")


def finish_on_host(module: Any, ensure: Callable[[], Outcome], live: bool = True, reads: bool = False) -> None:
    """End an AnsibleModule with the outcome of ``ensure``; if a part failed, the result includes what else was done.

    ``live``: the module changes the running kernel. It is refused in an image, where that kernel is the build host's.
    ``reads``: the module only reads; all others are refused to other users than root.
    """

    def work() -> dict[str, Any]:
        if live and in_chroot():
            raise HostError(
                f"{module._name}: this is the root of an image, and the running kernel is that of the build host: "
                "nothing was changed",
                "leave this call out in an image, or use gpu_host_boot with now: false",
            )
        if os.geteuid() != 0 and not reads:  # in check mode too, which says what the run then does
            raise HostError(
                f"{module._name}: it changes the host as root, but runs as user {os.geteuid()}: nothing was changed",
                "set become: true",
            )
        return ensure().to_result()

    finish(module, work)
