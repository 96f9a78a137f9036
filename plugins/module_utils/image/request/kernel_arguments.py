# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read kernel arguments. Those that iPXE would not pass on or that the boot sets itself are refused."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.record import Record

# The characters that iPXE passes on unchanged: it interprets quotes, backslashes and ${} itself.
ARGUMENT = re.compile(r"[A-Za-z0-9_][!#-&(-\[\]-~]*")
# The first stage's own arguments; boot.ipxe and the node's script set them.
RESERVED_ARGUMENTS = ("sailloft.", "BOOTIF=")
# kdump loads a kernel from the root file system.
USELESS_ARGUMENT = "crashkernel="
USELESS_REASON = "would take memory for nothing: a stateless root has no kernel file for kdump"
# Linux cuts the command line off at 2048 bytes (COMMAND_LINE_SIZE in arch/x86/include/asm/setup.h and
# arch/arm64/include/uapi/asm/setup.h) and boots without an error; a quarter is left for the boot's additions.
MOST_ARGUMENT_BYTES = 1536


def read_kernel_arguments(record: Record) -> tuple[str, ...]:
    """Return the record's kernel arguments, in order. Raises ImageError."""
    arguments = record.data.get("kernel_arguments", [])
    if not isinstance(arguments, (list, tuple)):
        raise record.refuse("kernel_arguments is not a list", "write it as [console=ttyS0, quiet]")
    for argument in arguments:
        if isinstance(argument, str) and re.search(r"\s", argument):
            raise record.refuse(f"kernel argument {argument!r} has white space", "give each argument separately")
        if not isinstance(argument, str) or not ARGUMENT.fullmatch(argument) or "${" in argument:
            raise record.refuse(
                f"kernel argument {argument!r} cannot be passed on by iPXE",
                "use printable ASCII without quotes, backslashes and ${, starting with a letter, digit or '_'",
            )
        if argument.startswith(RESERVED_ARGUMENTS):
            raise record.refuse(f"kernel argument {argument!r} is set at boot", "leave it out")
        if argument.startswith(USELESS_ARGUMENT):
            raise record.refuse(f"kernel argument {argument!r} {USELESS_REASON}", "leave it out")
    return tuple(arguments)
