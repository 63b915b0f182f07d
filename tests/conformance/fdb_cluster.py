"""A FoundationDB cluster for the conformance suite: the one that is named, or one in a container.

A container needs the client library on this machine all the same: no wheel brings libfdb_c.
"""

import atexit
import ctypes
import os
import tempfile
from functools import cache
from pathlib import Path

# The version has to be that of the client library, up to its last number.
IMAGE = os.environ.get("FDB_IMAGE", "foundationdb/foundationdb:7.3.63")
PORT = 4550
HELP = (
    "FoundationDB is not tested: set FDB_CLUSTER_FILE to a cluster file, or start a Docker engine "
    "(FDB_IMAGE names the image); either way the directory of libfdb_c.so must be on "
    "LD_LIBRARY_PATH"
)


def _library() -> bool:
    try:
        ctypes.CDLL("libfdb_c.so")
    except OSError:
        return False
    return True


def _docker() -> bool:
    if not Path("/var/run/docker.sock").exists() and "DOCKER_HOST" not in os.environ:
        return False
    try:
        import docker

        client = docker.from_env()
        client.ping()
        client.close()
    except Exception:
        return False
    return True


AVAILABLE = "FDB_CLUSTER_FILE" in os.environ or (_library() and _docker())


@cache
def cluster_file() -> str:
    """The cluster file to use; starts the container at the first call, stops it at exit."""
    named = os.environ.get("FDB_CLUSTER_FILE")
    if named is not None:
        return named
    from testcontainers.core.container import DockerContainer

    # The server tells its clients its address, so the mapped port must be the advertised one.
    container = (
        DockerContainer(IMAGE)
        .with_bind_ports(PORT, PORT)
        .with_env("FDB_PORT", str(PORT))
        .with_env("FDB_NETWORKING_MODE", "host")
    )
    container.start()
    atexit.register(container.stop)
    code, output = container.exec(["fdbcli", "--exec", "configure new single memory; status"])
    if code != 0:
        raise RuntimeError(f"FoundationDB in {IMAGE} cannot be configured: {output!r}")
    directory = Path(tempfile.mkdtemp(prefix="fdb-"))
    path = directory / "fdb.cluster"
    path.write_text(f"docker:docker@127.0.0.1:{PORT}\n")
    return str(path)
