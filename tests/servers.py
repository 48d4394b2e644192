"""The server that the tests share with `python -m stress`; it lives there, for that is for users too."""

from stress.servers import Server, private_server

__all__ = ["Server", "private_server"]
