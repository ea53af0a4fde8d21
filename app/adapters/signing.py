"""Signatures of what is sent to others, in the form of Standard Webhooks (standardwebhooks.com)."""

import base64
import hashlib
import hmac


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that sign `body`, in the form of Standard Webhooks."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
