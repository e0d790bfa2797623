"""Ports of processes that tests start."""

from pathlib import Path

import pytest

from tests.support.processes import LAST_PORT, free_port

KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL = 32_768


def test_a_port_is_given_once_and_is_none_that_the_kernel_gives_to_another_server_or_connection():
    first_of_kernel = int(KERNELS.read_text().split()[0]) if KERNELS.exists() else 0
    if first_of_kernel < USUAL:
        pytest.skip("this machine's kernel hands out others than a Linux that nobody has set")
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == 200
    assert max(ports) < LAST_PORT <= first_of_kernel
