"""Open a store by its URL: the only place that knows which backends there are."""

import random
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from ownership.kv import Database, StoreMisconfigured

KINDS = (
    "lmdb:///path[?sync=on|off&map_gib=16], memory:, fdb:///path/to/fdb.cluster[?prefix=dhsched]"
)


async def open_database(url: str, rng: random.Random | None = None) -> Database:
    """A database by its URL: `lmdb:///path`, `memory:` or `fdb:///path/to/fdb.cluster?prefix=...`.

    `rng` serves back-off; give one where runs must repeat exactly. Each `memory:` is a new, empty
    store. Raises StoreMisconfigured with what to change, StoreAway when a cluster does not answer.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    rng = random.Random() if rng is None else rng
    match parts.scheme:
        case "memory":
            from ownership.memory import MemoryDatabase

            _no_more(url, options)
            return MemoryDatabase(rng=rng)
        case "lmdb":
            from ownership.lmdb_store import MAP_GIB, open_lmdb

            sync = _choice(url, options.pop("sync", "on"), {"on": True, "off": False})
            map_gib = _number(url, options.pop("map_gib", str(MAP_GIB)))
            _no_more(url, options)
            return open_lmdb(
                _path(url, parts.netloc, parts.path), sync=sync, map_gib=map_gib, rng=rng
            )
        case "fdb":
            from ownership.foundationdb_store import PREFIX, open_foundationdb

            prefix = options.pop("prefix", PREFIX)
            _no_more(url, options)
            if parts.netloc or not prefix:
                raise StoreMisconfigured(f"{url}: not of the form fdb:///path?prefix=name")
            return await open_foundationdb(unquote(parts.path), prefix=prefix, rng=rng)
        case _:
            raise StoreMisconfigured(f"{url}: not a store URL; there are {KINDS}")


def _path(url: str, host: str, path: str) -> Path:
    if host or not path.startswith("/") or path == "/":
        raise StoreMisconfigured(f"{url}: needs an absolute path, with three slashes")
    return Path(unquote(path))


def _choice(url: str, given: str, allowed: dict[str, bool]) -> bool:
    if given not in allowed:
        raise StoreMisconfigured(f"{url}: {given!r} is not one of {', '.join(allowed)}")
    return allowed[given]


def _number(url: str, given: str) -> float:
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if not 0 < number < 1 << 16:
        raise StoreMisconfigured(f"{url}: {given!r} is not a size in GiB")
    return number


def _no_more(url: str, options: dict[str, str]) -> None:
    if options:
        raise StoreMisconfigured(f"{url}: unknown option {', '.join(sorted(options))}")
