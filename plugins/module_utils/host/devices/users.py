# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The current users of a PCI function: processes that have it open or mapped, and the host, from the topology."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import mapped_bars, open_files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files


def of_functions(system: System, functions: list[Function]) -> dict[str, list[str]]:
    """Return the users of each of ``functions`` as text, by address; unused functions are left out."""
    users = {function.address: list(function.used_by_host) for function in functions}
    files = Files(system.root)
    for opened in [*open_files(files, functions)[0], *mapped_bars(files, functions)] if functions else []:
        for address in opened.addresses:
            users[address].append(str(opened))
    return {address: list(dict.fromkeys(reasons)) for address, reasons in users.items() if reasons}


def in_words(users: dict[str, list[str]]) -> str:
    """Return the users as text: "0000:15:10.0: guest db1 (process 4711)"."""
    return "; ".join(f"{address}: {', '.join(reasons)}" for address, reasons in sorted(users.items()))
