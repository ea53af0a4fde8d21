"""One session or ranking in a process of its own, because it may freeze whatever runs it.

The child keeps the lease and says so by a byte at each heartbeat. When that stays away the child is
killed; its lease runs out, and the work is taken up once more only to be failed.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import structlog
from pydantic import SecretStr

from app.services.container import Services
from app.settings import Settings

logger = structlog.get_logger(__name__)

#: Beyond a lease: for the imports and the first heartbeat, seconds.
_START_S = 60.0


async def run_alone(
    services: Services, resource_id: str, epoch: int, started: Callable[[], object]
) -> None:
    """See claimed work through in a child process; returns when it has ended, or was killed.

    Args:
        services: Of this process.
        resource_id: The session or ranking.
        epoch: Of its lease.
        started: Called once the child is ready to keep the lease.
    """
    settings = services.settings
    order = {
        "settings": _plain(settings) | {"database_url": services.database.url},
        "id": resource_id,
        "epoch": epoch,
        "parent": os.getpid(),
    }
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "app.worker.alone_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("the child has no pipes")
        child.stdin.write(json.dumps(order).encode() + b"\n")
        await child.stdin.drain()  # stays open: its end tells the child that we have gone
        wait_s = _START_S + settings.lease_s
        while await asyncio.wait_for(child.stdout.read(1), wait_s):
            started()
            wait_s = settings.lease_s + settings.heartbeat_s
    except TimeoutError:
        logger.warning("lone_work_froze", id=resource_id)
    except (BrokenPipeError, ConnectionResetError):
        logger.warning("lone_work_died", id=resource_id)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await asyncio.shield(child.wait())


def _plain(settings: Settings) -> dict[str, Any]:
    """Settings as JSON, secrets and all: they go through a pipe to our own child."""
    shown = settings.model_dump(mode="json")
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            shown[name] = value.get_secret_value()
    return shown
