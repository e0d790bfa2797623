"""`python -m sandbox --port 8001`: local stand-ins for providers, on 127.0.0.1 only."""

import argparse
import asyncio
import sys

from sandbox.server import serve

MAX_PORT = 65_535


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {MAX_PORT}")
    return port


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    parser.add_argument("--port", type=_port, default=8001, help="0 takes a free one and prints it (default 8001)")
    port = parser.parse_args().port
    try:
        asyncio.run(serve(port))
    except OSError as error:
        told = f"port {port} of 127.0.0.1 cannot be used: {error.strerror}. QUEUEOPS_SANDBOX_PORT names another"
        sys.stderr.write(f"sandbox: {told}.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
