"""What every answer tells browsers, whoever gives it."""

from typing import Final

#: On every answer that does not say otherwise: browsers guess no types, show nothing in frames of
#: other sites, load nothing for what is not a page, and tell nobody where they come from.
SECURE: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
