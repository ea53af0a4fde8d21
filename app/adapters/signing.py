"""Signs requests to callbacks and webhooks, in the form of Standard Webhooks.

The headers are `webhook-id`, `webhook-timestamp` (seconds since 1970), and
`webhook-signature: v1,` + base64(HMAC-SHA256(key, id + "." + timestamp + "." + body)).

Source: standardwebhooks.com.
"""

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
