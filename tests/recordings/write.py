#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes a recording of this directory: a machine recorded in any form, what it is, and where it is from.

python tests/recordings/write.py NAME RECORDING --machine TEXT --source TEXT
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read import recordings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("recording", help="the recording, in any form that host_topology_info reads")
    parser.add_argument("--machine", required=True, help="what the machine is")
    parser.add_argument("--source", required=True, help="who recorded it, where that is, under which licence")
    arguments = parser.parse_args()
    topology = json.loads(recordings.write_recording(recordings.read_recording(arguments.recording)))
    recording = {"machine": arguments.machine, "source": arguments.source, "topology": topology}
    target = Path(__file__).parent / f"{arguments.name}.json"
    target.write_text(recordings.render(recording) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
