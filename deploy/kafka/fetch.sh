#!/bin/sh
# Copies the jars of Apache Kafka named by pom.xml to build/kafka/libs, unless they are there.
# Usage: sh deploy/kafka/fetch.sh [LIBS [POM]]  Needs Java 17 and Maven. Prints the folder.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
libs=${1:-"$here/../../build/kafka/libs"}
pom=${2:-"$here/pom.xml"}
want=$(cksum <"$pom")

if [ "$(cat "$libs/.complete" 2>/dev/null || true)" = "$want" ]; then
    echo "$libs"
    exit 0
fi
command -v mvn >/dev/null || { echo "Maven (mvn) is missing: apt install maven" >&2; exit 1; }
mkdir -p "$(dirname -- "$libs")"
# Maven takes a relative folder to be beside the POM.
libs=$(CDPATH= cd -- "$(dirname -- "$libs")" && pwd)/$(basename -- "$libs")
# Copied beside and renamed at the end: whoever looks meanwhile sees all jars or none.
fresh=$(mktemp -d "$libs.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
echo "Fetching Apache Kafka's jars with Maven ..." >&2
mvn -q -B -f "$pom" dependency:copy-dependencies "-Dlibs=$fresh" >&2
echo "$want" >"$fresh/.complete"
chmod 755 "$fresh"
rm -rf "$libs"
mv "$fresh" "$libs"
echo "$libs"
