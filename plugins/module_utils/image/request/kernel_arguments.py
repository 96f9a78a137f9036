# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read kernel arguments. Those that iPXE would not pass on or that the boot sets itself are refused."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError

# The characters that iPXE passes on unchanged: it interprets quotes, backslashes and ${} itself.
ARGUMENT = re.compile(r"[A-Za-z0-9_][!#-&(-\[\]-~]*")
# The first stage's own arguments; boot.ipxe and the node's script set them.
RESERVED_ARGUMENTS = ("sailloft.", "BOOTIF=")
# Arguments that would end or not change the boot of an image, and the reason.
WRONG_ARGUMENTS = {
    "rdinit=": "would replace the first stage, which verifies the image",
    "initrd=": "would replace the first stage, which verifies the image",
    "init=": "has no effect: the first stage starts /sbin/init",
    "root=": "has no effect: the root is the image",
}
# Linux cuts the command line off at 2048 bytes (COMMAND_LINE_SIZE in arch/x86/include/asm/setup.h and
# arch/arm64/include/uapi/asm/setup.h) and boots without an error; a quarter is left for the boot's additions.
MOST_ARGUMENT_BYTES = 1536


def read_kernel_arguments(settings: Settings) -> tuple[str, ...]:
    """Return the kernel arguments of a layer or an image, in order. Raises ImageError."""
    return tuple(settings.value("kernel_arguments", values.each(_argument), []))


def _argument(value: Any) -> str:
    if isinstance(value, str) and re.search(r"\s", value):
        raise InvalidValueError(f"{value!r} has white space", "give each argument separately")
    if not isinstance(value, str) or not ARGUMENT.fullmatch(value) or "${" in value:
        raise InvalidValueError(
            f"{value!r} cannot be passed on by iPXE",
            "use printable ASCII without quotes, backslashes and ${, starting with a letter, digit or '_'",
        )
    if value.startswith(RESERVED_ARGUMENTS):
        raise InvalidValueError(f"{value!r} is set at boot", "leave it out")
    reason = wrong_reason(value)
    if reason:
        raise InvalidValueError(f"{value!r} {reason}", "leave it out")
    return value


def wrong_reason(argument: str) -> str | None:
    """Return why no image can boot with the argument or be changed by it, None if it can."""
    return next((reason for wrong, reason in WRONG_ARGUMENTS.items() if argument.startswith(wrong)), None)
