# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expand the blocks and place racks on the floor: in rows, in the order of the blueprint."""

from __future__ import annotations

from collections import Counter

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.names import template
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import DEVICES_MAX, NUMBERS
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import SITE, Blueprint


def expand_blocks(blueprint: Blueprint) -> tuple[Block, dict[str, list[Block]], list[Block]]:
    """Return the site's block, all blocks by kind, and the racks in their order on the floor."""
    labels = {name: template(spec.label, NUMBERS) for name, spec in blueprint.blocks.items()}
    inner = {
        name: [spec for spec in blueprint.blocks.values() if spec.inside == name] for name in (SITE, *blueprint.blocks)
    }
    _check_count(blueprint)
    root = Block(None, None, 1, blueprint.site)
    by_kind: dict[str, list[Block]] = {SITE: [root], **{name: [] for name in blueprint.blocks}}
    racks: list[Block] = []
    numbers: Counter[str] = Counter()
    floor = blueprint.floor
    row = column = 0

    def fill(parent: Block) -> None:
        nonlocal row, column
        for spec in inner[parent.kind]:
            for index in range(spec.count):
                numbers[spec.name] += 1
                number = numbers[spec.name]
                block = Block(spec, parent, number, labels[spec.name]({"n": number, "i": index + 1}))
                parent.children.append(block)
                by_kind[spec.name].append(block)
                if spec.new_row and column:
                    row, column = row + 1, 0
                if spec.rack:
                    if column == floor.racks_per_row:
                        row, column = row + 1, 0
                    block.row = row
                    block.x_m, block.y_m = column * floor.rack_width_m, row * floor.row_pitch_m
                    column += 1
                    racks.append(block)
                else:
                    fill(block)

    fill(root)
    return root, by_kind, racks


def _check_count(blueprint: Blueprint) -> None:
    """Raise SiteError for more blocks than any site has, before they are made."""
    counts = {SITE: 1}
    for spec in blueprint.blocks.values():
        counts[spec.name] = counts[spec.inside] * spec.count
        if counts[spec.name] > DEVICES_MAX:
            raise SiteError(
                f"{counts[spec.name]} blocks exceed the maximum of {DEVICES_MAX}",
                "correct the counts",
                subject=f"blocks.{spec.name}.count",
                where=blueprint.where("blocks", spec.name, "count"),
            )


def racks_in(block: Block, kind: str) -> list[Block]:
    """Return the racks of a kind in a block, which may be such a rack itself."""
    if block.kind == kind:
        return [block]
    return [rack for child in block.children for rack in racks_in(child, kind)]
