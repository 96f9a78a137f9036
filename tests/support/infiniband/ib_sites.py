# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small site with an InfiniBand fabric: 4 nodes with 2 rails, 2 units with 2 leaves, and 2 spines; its GUIDs."""

from __future__ import annotations

from typing import Any

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site

# ibsim's links have 10 Gbit/s: 4 lanes of SDR.
GBIT_S = 10
DOWN = {"names": "ib[1:8]", "speed_gbit_s": GBIT_S}
TREE: dict[str, Any] = {
    "blocks": {"rack": {"units": 42, "count": 2}, "network": {"units": 42}},
    "models": {
        "node": {"watts": 1, "ports": {"hca": {"names": "mlx5_[0:1]", "speed_gbit_s": GBIT_S}}},
        "leaf": {
            "watts": 1,
            "ports": {
                "down": {"names": "ib[1:2]", "speed_gbit_s": GBIT_S},
                "up": {"names": "ib[3:4]", "speed_gbit_s": GBIT_S},
            },
        },
        "spine": {"watts": 1, "ports": {"down": DOWN}},
    },
    "networks": {},
    "devices": {
        "node": {"model": "node", "per": "rack", "count": 2, "name": "node-{n}", "groups": ["gpu_nodes"]},
        "leaf": {"model": "leaf", "per": "rack", "count": 2, "name": "leaf-{rack}-{i}", "unit": 10},
        "spine": {"model": "spine", "rack": "network", "count": 2, "name": "spine-{n}", "unit": 20},
    },
    "links": {
        "rails": {
            "from": "node",
            "ports": "hca",
            "to": "leaf",
            "to_ports": "down",
            "medium": "copper",
            "fabric": "compute",
            "infiniband": True,
        },
        "up": {
            "from": "leaf",
            "ports": "up",
            "to": "spine",
            "to_ports": "down",
            "each": 1,
            "medium": "copper",
            "fabric": "compute",
            "infiniband": True,
        },
    },
    "media": {"copper": {"most_m": 50}},
    "checks": {},
}


def tree(**changes: Any) -> Site:
    """Return the small site, with changes as those of ``sites.site``."""
    return sites.site(**TREE, **changes)


def star(switches: int = 1) -> Site:
    """Return a site with 2 nodes with 2 rails on one switch, or on one each."""
    leaf = {"model": "leaf", "rack": "rack", "count": switches, "name": "leaf-{n}", "unit": 10}
    return sites.site(
        **{
            **TREE,
            "blocks": {"rack": {"units": 42}},
            "models": {**TREE["models"], "leaf": {**TREE["models"]["leaf"], "ports": {"down": DOWN}}},
            "devices": {"node": TREE["devices"]["node"], "leaf": leaf},
            "links": {"rails": TREE["links"]["rails"]},
        }
    )


def made_up_guids(fabric: Fabric) -> dict[str, Any]:
    """Return a GUID for every HCA and switch, as the inventory has them."""
    guids: dict[str, Any] = {switch: f"0x{0x200000 + at:016x}" for at, switch in enumerate(fabric.switches)}
    for at, hca in enumerate(fabric.hcas):
        guids.setdefault(hca.host, {})[hca.name] = f"0x{0x100000 + at:016x}"
    return guids


def small() -> tuple[Site, dict[str, Any]]:
    """Return the small site and its GUIDs."""
    site = tree()
    return site, made_up_guids(fabric_of(site, "compute"))


def blue_vela() -> Site:
    """Return the site Blue Vela, 4,096 HCAs on 8 rails, with the speed of ibsim's links."""
    text = (sites.PROJECT / "inventories/blue_vela/blueprint.yml").read_text(encoding="utf-8")
    lines = [
        line.replace("speed_gbit_s: 400", f"speed_gbit_s: {GBIT_S}") if "compute:" in line or "ib[" in line else line
        for line in text.replace("ndr-mmf", "copper").splitlines()
    ]
    return sites.from_text("\n".join([*lines, "media: {copper: {most_m: 500}}", ""]))
