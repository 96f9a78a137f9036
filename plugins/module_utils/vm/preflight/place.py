# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The server on which restart_vm.yml has started a virtual machine of another one, as a file on the controller. Pure.

The returned server still has its definition, and the inventory may still name it: without the file both would run it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError

FORMAT = "sailloft-vm-place/1"


@dataclass(frozen=True)
class VmPlace:
    """A virtual machine and the server that runs it."""

    vm: str
    server: str


def dump(place: VmPlace) -> str:
    """Return the content of the file."""
    return json.dumps({"format": FORMAT, **asdict(place)}) + "\n"


def check(vm: str, server: str, content: str, path: str) -> None:
    """Raise DomainError unless the file says that the server runs the virtual machine."""
    try:
        data = json.loads(content)
        place: VmPlace = stored.load(VmPlace, data, FORMAT, "place of a virtual machine", "restore the file")
    except (ValueError, RecursionError, StoredError) as error:
        raise DomainError(
            f"{path} cannot be read, so that it is not known which server runs it: {error}",
            f"look where it runs; remove the file if that is {server}",
            domain=vm,
        ) from error
    if place.server != server:
        raise DomainError(
            f"it runs on {place.server}, where restart_vm.yml has started it, and is not started on {server}, too",
            f"move its entry in gpu_vm_domains to {place.server}; to bring it back, run virsh shutdown and virsh "
            f"undefine --nvram for it on {place.server}, then remove {path}",
            domain=vm,
        )
