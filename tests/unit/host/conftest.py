# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU servers in the tests' directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
from gpu_server import KilledError, Server


@pytest.fixture
def make_server(tmp_path: Path) -> Callable[[], Server]:
    """Return a function that makes servers, which are all alike."""
    made: list[Server] = []

    def make() -> Server:
        made.append(Server(tmp_path / f"server{len(made)}"))
        return made[-1]

    return make


@pytest.fixture
def server(make_server: Callable[[], Server]) -> Server:
    """One server."""
    return make_server()


@pytest.fixture
def killed_anywhere(make_server: Callable[[], Server]) -> Callable[..., int]:
    """Return a function that runs ``ensure(server)``, killed before its first effect, its second, and so on.

    The next run must complete it: reach the same state as a run that was not killed, and leave nothing to change. The
    function returns the number of places where it killed a run.
    """

    def check(arrange: Callable[[Server], None], ensure: Callable[[Server], Any]) -> int:
        whole = make_server()
        arrange(whole)
        before = len(whole.effects)
        ensure(whole)
        places = len(whole.effects) - before
        for place in range(places):
            server = make_server()
            arrange(server)
            server.kill_at = len(server.effects) + place
            with pytest.raises(KilledError):
                ensure(server)
            server.kill_at = None
            ensure(server)
            assert server.state() == whole.state(), f"killed at place {place}, before {whole.effects[before + place]}"
            assert not ensure(server).changed
        return places

    return check
