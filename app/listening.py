"""A socket bound to an address, or one clear error."""

import socket

from app.errors import InvalidInputError


def bound(host: str, port: int, *, remedy: str) -> socket.socket:
    """A TCP socket bound to the address; port 0 takes any free one.

    Raises:
        InvalidInputError: The address is taken, or not of this machine; ends with `remedy`.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise InvalidInputError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. {remedy}"
        ) from error
    return listener
