"""For all tests: nothing is read from or left in the user's own cache, and no test may reach a hub."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # In the environment, not by monkeypatching, so that child processes have it too.
    folder = tmp_path_factory.mktemp("setpoint-cache")
    os.environ["SETPOINT_CACHE"] = str(folder)
    return folder


@pytest.fixture(autouse=True, scope="session")
def _offline() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
