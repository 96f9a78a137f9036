# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's cuFile library, from the wheel nvidia-cufile, opened without a GPU: it reads its settings, and says so."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import files
from pathlib import Path

OPEN = """
import ctypes, sys
class Error(ctypes.Structure):
    _fields_ = [("cufile", ctypes.c_int), ("cuda", ctypes.c_int)]
library = ctypes.CDLL(sys.argv[1])
library.cuFileDriverOpen.restype = library.cuFileGetParameterBool.restype = Error
library.cuFileDriverOpen()
value = ctypes.c_bool()
for parameter in map(int, sys.argv[2:]):
    error = library.cuFileGetParameterBool(parameter, ctypes.byref(value))
    print(int(value.value) if error.cufile == 0 else "error")
"""


def library() -> Path:
    """Return the path of the library."""
    (path,) = (path for path in files("nvidia-cufile") or () if path.name == "libcufile.so.0")
    return Path(path.locate())


def parameters(settings: Path, *numbers: int) -> list[str]:
    """Return parameters (CUFileBoolConfigParameter_t of cufile.h) after a file of settings was read."""
    argv = [sys.executable, "-c", OPEN, str(library()), *map(str, numbers)]
    environment = {"CUFILE_ENV_PATH_JSON": str(settings)}
    answer = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=60, check=True, cwd=settings.parent
    )
    return answer.stdout.split()


def logged(settings: Path, enough: Callable[[str], bool]) -> str:
    """Return the library's log once it is ``enough``. Without RDMA devices the library then waits for long."""
    environment = {"CUFILE_ENV_PATH_JSON": str(settings)}
    process = subprocess.Popen([sys.executable, "-c", OPEN, str(library())], env=environment, cwd=settings.parent)
    try:
        end = time.monotonic() + 60
        log = ""
        while not enough(log) and time.monotonic() < end:
            time.sleep(0.1)
            log = "".join(path.read_text() for path in settings.parent.glob("cufile*.log"))
    finally:
        process.kill()
        process.wait()
    return log
