# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The recordings of real machines, read once, by name."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording

FOLDER = Path(__file__).parents[2] / "recordings"
RECORDED = {
    name: read_recording(str(FOLDER / f"{name}.json"))
    for name in ("aws-g4dn-metal", "llnl-corona", "llnl-lassen", "llnl-tioga", "emulated-gpu-server")
}
