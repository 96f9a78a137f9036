# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An inventory of hosts and switches, as roce_path_info receives it."""

from __future__ import annotations

from switches import ASIC_OF

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS


def port(peer, speed=400, cable=5):
    return {"speed_gbit_s": speed, "cable_m": cable, "peer": peer}


def inventory(system, names):
    """Return two leaves and a spine that run ``system``, and two hosts."""
    host_port, up_port, *_rest = names
    switches = {}
    for at, leaf in enumerate(("leaf1", "leaf2"), 1):
        ports = {
            host_port: port({"host": f"gpu{at}", "port": "mlx5_0"}),
            up_port: port({"switch": "spine1", "port": names[at - 1]}),
        }
        switches[leaf] = {"system": system, "asic": ASIC_OF.get(system, "spectrum3"), "ports": ports}
    ports = {names[at]: port({"switch": f"leaf{at + 1}", "port": up_port}) for at in (0, 1)}
    switches["spine1"] = {"system": system, "asic": ASIC_OF.get(system, "spectrum3"), "ports": ports}
    if system == "junos":
        switches = {name: {**each, "queue_buffer_bytes": 10_000_000} for name, each in switches.items()}
    return switches


def no_headroom(system: str) -> str | None:
    """Return why a system that sends pauses does not show its headroom, or None if it shows it or sends no pauses."""
    reasons = SYSTEMS[system].not_held
    return None if "pfc" in reasons else reasons.get("headroom")
