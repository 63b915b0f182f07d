#!/bin/bash
# Makes the database of one process unless there is one, and the roles' cluster file.
set -euo pipefail
file=/etc/foundationdb/fdb.cluster
user=10001 # as in deploy/Dockerfile

[ -s "$file" ] || echo "$FDB_CLUSTER" >"$file"
for try in $(seq 60); do
    if said=$(fdbcli -C "$file" --exec "status minimal" --timeout 5 2>&1) &&
        grep -q "is available" <<<"$said"; then
        chown -R "$user:$user" /etc/foundationdb
        echo "the database is available"
        exit 0
    fi
    # Refused, and harmless, when the database is there already and only slow to answer.
    fdbcli -C "$file" --exec "configure new single ssd" --timeout 10 || true
    sleep 1
done
echo "the database is not available after $try tries: $said" >&2
exit 1
