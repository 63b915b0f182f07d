"""The viewer page and its assets, read once at start and served from memory."""

import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response

from dispatch.problems import Problem, ProblemKind

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
ASSET_MAX_AGE_S = 300
FILE_BYTES_MAX = 4_194_304

# Everything from here; media may come from a worker's address, which only the store knows.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; media-src 'self' blob: http: https:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file with what its answer says of it."""

    body: bytes
    media_type: str
    etag: str


def load_assets(folder: Path = FOLDER) -> dict[str, Asset]:
    """Paths relative to the folder. Hidden files and what is too large are left out."""
    assets: dict[str, Asset] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        hidden = any(part.startswith(".") for part in name.split("/"))
        if not path.is_file() or hidden or path.stat().st_size > FILE_BYTES_MAX:
            continue
        body = path.read_bytes()
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        assets[name] = Asset(body, kind, f'"{hashlib.sha256(body).hexdigest()[:24]}"')
    return assets


def viewer_router(assets: dict[str, Asset]) -> APIRouter:
    """Routes that are no part of the interface's description."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    @router.get("/watch/{live_id}")
    async def page(request: Request) -> Response:
        return _answer(request, assets, INDEX, "no-cache")

    @router.get("/static/{name:path}")
    async def asset(request: Request, name: str) -> Response:
        return _answer(request, assets, name, f"public, max-age={ASSET_MAX_AGE_S}")

    del page, asset  # they live on in the router
    return router


def _answer(request: Request, assets: dict[str, Asset], name: str, caching: str) -> Response:
    asset = assets.get(name)
    if asset is None:
        raise Problem(ProblemKind.NOT_FOUND, "There is no such file.")
    headers = {
        "ETag": asset.etag,
        "Cache-Control": caching,
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    known = request.headers.get("if-none-match", "")
    if asset.etag in (part.strip() for part in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)
