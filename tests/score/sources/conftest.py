"""A throwaway PostgreSQL server: own data folder, own port on 127.0.0.1, stopped and removed at the end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

INSTALL_LIMIT_S = 300
INITDB_LIMIT_S = 60
START_LIMIT_S = 30
STOP_LIMIT_S = 15
USER = "setpoint"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a running server with an empty database; skips where PostgreSQL can't be had."""
    binaries = _find_binaries() or _install()
    identity = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="setpoint-pg-"))
    try:
        if identity:
            os.chown(folder, identity["user"], identity["group"])
        with _server(binaries, folder, identity) as url:
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_binaries() -> Path | None:
    places = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    return None


def _install() -> Path:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("PostgreSQL is not installed (no initdb on PATH or in /usr/lib/postgresql)")
    try:
        done = subprocess.run(
            ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            timeout=INSTALL_LIMIT_S,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"PostgreSQL could not be installed within {INSTALL_LIMIT_S} s")
    found = _find_binaries()
    if found is None:
        pytest.skip(f"PostgreSQL could not be installed: {done.stderr.strip().splitlines()[-1:]}")
    return found


def _unprivileged() -> dict[str, Any]:
    """Whom to run as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("there is no unprivileged user to run PostgreSQL as")


@contextlib.contextmanager
def _server(binaries: Path, folder: Path, identity: dict[str, Any]) -> Iterator[str]:
    data, log = folder / "data", folder / "log"
    options: dict[str, Any] = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, **identity}
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", USER, "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync"],
        check=True,
        timeout=INITDB_LIMIT_S,
        capture_output=True,
        **options,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binaries / "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", folder, "-F"]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **options)
    try:
        _wait_for(process, port, log)
        yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # "fast": end the sessions, then stop
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit and process.poll() is None:
        if b"ready to accept connections" in log.read_bytes():
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return
        time.sleep(0.05)
    pytest.fail(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")
