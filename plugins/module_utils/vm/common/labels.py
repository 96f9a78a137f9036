# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The names of PCI functions in messages. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function

KINDS = {kind.name: kind.label for kind in kinds.DEVICES}


def name(function: Function) -> str:
    """Return the kind and address of a function: "GPU 0000:3b:00.0"; a virtual function of any kind is a VF."""
    return label("VF" if function.physical_function else function.kind, function.address)


def label(kind: str, address: str) -> str:
    """Return the name of a function that is known by kind and address only."""
    return f"{'VF' if kind == 'VF' else KINDS.get(kind, 'device')} {address}"
