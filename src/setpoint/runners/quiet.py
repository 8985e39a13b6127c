"""Nothing phones home: the usage reports of the libraries below are switched off before those libraries load.

What each does when nobody says anything, and what is done about it:

- OpenVINO and NNCF send usage events through the package openvino_telemetry, and write a client id under the user's
  home, unless a consent file says no. The package has no environment switch, but both work without it, so its import
  is blocked. No file is written.
- The hub client (huggingface_hub, transformers, datasets) reports what runs along with its requests, and transformers
  asks a hub service to convert models that have no safetensors file. Both have an environment switch.
- Ray has an environment switch too.

A variable that the user has set is left as it is, and SETPOINT_TELEMETRY=1 leaves all of them to their own settings.
This module runs when `setpoint.runners` is imported, which is before any code of ours can import those libraries.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

from setpoint.errors import UsageError

SWITCH = "SETPOINT_TELEMETRY"

VARIABLES = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "DISABLE_SAFETENSORS_CONVERSION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

BLOCKED_PACKAGE = "openvino_telemetry"

_ON = {"1", "true", "yes", "on"}
_OFF = {"", "0", "false", "no", "off"}
_SENDERS = ("start_session", "end_session", "send_event", "send_error", "send_stack_trace", "send_opt_in_event")


def telemetry_allowed() -> bool:
    """Whether the user has turned telemetry on (SETPOINT_TELEMETRY=1). Raises UsageError for a value it can't read."""
    value = os.environ.get(SWITCH, "").strip().lower()
    if value in _ON:
        return True
    if value in _OFF:
        return False
    raise UsageError(
        f"{SWITCH}={os.environ[SWITCH]!r} is neither on nor off; set it to 1 or 0, or leave it unset (off)"
    )


def switch_telemetry_off() -> None:
    """Switch off the telemetry of what we depend on, unless the user turned it on. May be called many times."""
    if telemetry_allowed():
        return
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
    _quieten_hub_client()
    _quieten_openvino()


def _quieten_hub_client() -> None:
    # The hub client reads its environment when it is imported; a program that imported it before us has it already.
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None and os.environ["HF_HUB_DISABLE_TELEMETRY"] == VARIABLES["HF_HUB_DISABLE_TELEMETRY"]:
        constants.HF_HUB_DISABLE_TELEMETRY = True  # type: ignore[attr-defined]


def _quieten_openvino() -> None:
    loaded = sys.modules.get(BLOCKED_PACKAGE)
    if loaded is None:
        # None in sys.modules makes an import raise ModuleNotFoundError, which OpenVINO and NNCF both expect.
        sys.modules[BLOCKED_PACKAGE] = None  # type: ignore[assignment]
        return
    _mute(loaded)


def _mute(package: ModuleType) -> None:
    # The program imported OpenVINO before us, which has reported already; from now on nothing is sent.
    def send_nothing(*args: object, **kwargs: object) -> None:
        return None

    for name in _SENDERS:
        if hasattr(package.Telemetry, name):
            setattr(package.Telemetry, name, send_nothing)
