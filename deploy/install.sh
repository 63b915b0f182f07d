#!/bin/sh
# Installs the locked packages and this project into a virtual environment that holds uv.
# Usage: TORCH_BACKEND=cpu|default|auto|cuNNN [TORCH_INDEX=url] sh deploy/install.sh VENV LOCK
set -eu
venv=$1
lock=$2
uv="$venv/bin/uv"
export VIRTUAL_ENV="$venv"
# Compiled once here instead of by every process that starts: a role's imports take less than half
# the time, also where PYTHONDONTWRITEBYTECODE or a read-only folder keeps Python from doing it.
export UV_COMPILE_BYTECODE=1 UV_COMPILE_BYTECODE_TIMEOUT=600
torch=$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
want=${torch#torch==}

have=$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true)
case "$have" in
"$want" | "$want"+*) echo "torch $have is installed." ;;
*)
    echo "Installing torch $want (${TORCH_INDEX:-$TORCH_BACKEND}) ..."
    if [ -n "${TORCH_INDEX:-}" ]; then
        "$uv" pip install --quiet --index-url "$TORCH_INDEX" "$torch"
    elif [ "$TORCH_BACKEND" = default ]; then
        "$uv" pip install --quiet "$torch"
    elif ! UV_HTTP_TIMEOUT=20 "$uv" pip install --quiet --torch-backend "$TORCH_BACKEND" "$torch"; then
        echo "The torch index for '$TORCH_BACKEND' gave nothing; using the configured package index" >&2
        echo "instead, whose build brings about 3 GB of CUDA. Name a mirror with TORCH_INDEX=..." >&2
        "$uv" pip install "$torch"
    fi
    ;;
esac
echo "Installing the packages of $lock ..."
"$uv" pip install --quiet --no-deps --require-hashes -r "$lock"
"$uv" pip install --quiet --no-deps --no-build-isolation -e . 2>/dev/null || "$uv" pip install --quiet --no-deps -e .
