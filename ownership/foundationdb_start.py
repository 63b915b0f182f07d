"""Everything that must be right before FoundationDB can be used, each with a message that helps.

The client library (libfdb_c) is loaded once per process and runs one network thread that can be
neither restarted nor taken over a fork: a process opens the store after it was spawned.
"""

import importlib
import os
import re
import threading
from pathlib import Path
from typing import Any

from ownership.foundationdb_transaction import Bindings
from ownership.kv import StoreMisconfigured

API_VERSION_MIN = 730
DEFAULT_CLUSTER_FILE = "/etc/foundationdb/fdb.cluster"
_CLUSTER_LINE = re.compile(r"^\w+:\w+@[^\s,@]+:\d+(:tls)?(,[^\s,@]+:\d+(:tls)?)*$")
_lock = threading.Lock()


def load_bindings() -> Bindings:
    """The module `fdb` with an API version selected. Raises StoreMisconfigured."""
    try:
        fdb: Any = importlib.import_module("fdb")
    except ModuleNotFoundError as error:
        raise StoreMisconfigured(
            "the FoundationDB bindings are not installed: pip install 'dhsched[foundationdb]'"
        ) from error
    with _lock:
        if not fdb.is_api_version_selected():
            _select(fdb)
    return fdb


def _select(fdb: Any) -> None:
    try:
        capi = importlib.import_module("fdb.impl")._capi
        offered = int(capi.fdb_get_max_api_version())
    except Exception as error:
        # The bindings raise a bare Exception when they find no library, OSError when it is broken.
        raise StoreMisconfigured(
            "FoundationDB's client library libfdb_c cannot be loaded. No wheel brings it: install "
            "foundationdb-clients, or put the directory of libfdb_c.so into LD_LIBRARY_PATH before "
            f"the process starts (FDB_LIBRARY_PATH is not read). The loader says: {error}"
        ) from error
    wanted = min(offered, int(fdb.LATEST_API_VERSION))
    if wanted < API_VERSION_MIN:
        raise StoreMisconfigured(
            f"libfdb_c offers API version {offered} and the bindings {fdb.LATEST_API_VERSION}; "
            f"{API_VERSION_MIN} is needed: install FoundationDB clients 7.3 or newer"
        )
    # The bindings announce their own newest version as the one they were compiled for, and an
    # older library refuses that, although the functions used here are the same.
    fdb.LATEST_API_VERSION = wanted
    try:
        fdb.api_version(wanted)
    except Exception as error:
        raise StoreMisconfigured(
            f"FoundationDB's bindings and its client library do not go together: {error}"
        ) from error


def cluster_file(given: str) -> Path:
    """The cluster file that is used: the given one, FDB_CLUSTER_FILE, or the system's.

    Raises StoreMisconfigured when the client could not read it, or could not rewrite it when the
    coordinators change, for which its directory must be writable too.
    """
    path = Path(given or os.environ.get("FDB_CLUSTER_FILE") or DEFAULT_CLUSTER_FILE)
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise StoreMisconfigured(f"there is no cluster file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StoreMisconfigured(f"the cluster file {path} cannot be read: {error}") from error
    lines = [line.strip() for line in text.splitlines()]
    content = [line for line in lines if line and not line.startswith("#")]
    if len(content) != 1 or not _CLUSTER_LINE.match(content[0]):
        raise StoreMisconfigured(
            f"{path} is no cluster file: it should hold one line like name:id@127.0.0.1:4500"
        )
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            raise StoreMisconfigured(
                f"{place} may not be written: FoundationDB's client rewrites the cluster file when "
                "the coordinators change, so the file and its directory must be writable"
            )
    return path
