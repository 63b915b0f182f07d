#!/bin/bash
# The layout of compose.yaml as plain processes: Apache Kafka (Java), one LMDB store, two dispatchers
# and three workers, with the same commands and environment. Ctrl-C drains and ends everything.
#
#   deploy/run-local.sh                    after `make install`; Java 17 and Maven for the broker
#   KAFKA=host:port deploy/run-local.sh    with a broker that runs already
#
#   RUN     folder of data and logs (build/run-local); WORKERS (3), DISPATCHERS (2), CAPACITY (4)
#   PORT    of the first dispatcher (8080; the next ones follow), workers from PORT + 10
set -euo pipefail
cd "$(dirname "$0")/.."

RUN=$(realpath -m "${RUN:-build/run-local}")
WORKERS=${WORKERS:-3}
DISPATCHERS=${DISPATCHERS:-2}
CAPACITY=${CAPACITY:-4}
PORT=${PORT:-8080}
BIN=$PWD/.venv/bin
mkdir -p "$RUN"
pids=()

stop() {
    trap - EXIT INT TERM
    # Last started first: workers hand over and drain while dispatchers and broker still answer.
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill -TERM "${pids[i]}" 2>/dev/null || true
        wait "${pids[i]}" 2>/dev/null || true
    done
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start() { # NAME COMMAND...
    local name=$1
    shift
    # A session of its own: a Ctrl-C in the terminal is for us, who end them in order.
    setsid "$@" >"$RUN/$name.log" 2>&1 &
    pids+=($!)
    echo "$name: pid $!, log $RUN/$name.log"
}

await() { # NAME URL PID
    for _ in $(seq 240); do
        kill -0 "$3" 2>/dev/null || { echo "$1 ended:" >&2; tail -n 20 "$RUN/$1.log" >&2; exit 1; }
        "$BIN/python" - "$2" <<'PYTHON' 2>/dev/null && return
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=3)
PYTHON
        sleep 0.5
    done
    echo "$1 is not ready; its log: $RUN/$1.log" >&2
    exit 1
}

if [ -z "${KAFKA:-}" ]; then
    libs=$(sh deploy/kafka/fetch.sh)
    KAFKA=127.0.0.1:$((PORT + 100))
    cat >"$RUN/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((PORT + 101))
listeners=PLAINTEXT://$KAFKA,CONTROLLER://127.0.0.1:$((PORT + 101))
advertised.listeners=PLAINTEXT://$KAFKA
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$RUN/kafka
offsets.topic.replication.factor=1
auto.create.topics.enable=false
unclean.leader.election.enable=false
group.initial.rebalance.delay.ms=0
PROPERTIES
    java=(java -Xmx512m "-Dlog4j2.configurationFile=$PWD/deploy/kafka/log4j2.properties" -cp "$libs/*")
    if [ ! -e "$RUN/kafka/meta.properties" ]; then
        "${java[@]}" kafka.tools.StorageTool format -c "$RUN/server.properties" \
            -t "$("${java[@]}" kafka.tools.StorageTool random-uuid)" >"$RUN/format.log" 2>&1
    fi
    start kafka "${java[@]}" kafka.Kafka "$RUN/server.properties"
    for _ in $(seq 120); do
        (exec 3<>"/dev/tcp/${KAFKA%:*}/${KAFKA#*:}") 2>/dev/null && break
        sleep 0.5
    done
fi

export DHSCHED_KAFKA=$KAFKA
export DHSCHED_STORE=lmdb://$RUN/store
export DHSCHED_HOST=127.0.0.1

for ((n = 1; n <= DISPATCHERS; n++)); do
    start "dispatch-$n" env DHSCHED_PORT=$((PORT + n - 1)) "$BIN/dhsched" dispatch
    [ "$n" -gt 1 ] || await dispatch-1 "http://127.0.0.1:$PORT/readyz" "${pids[-1]}"
done
first=${#pids[@]}
for ((n = 1; n <= WORKERS; n++)); do
    start "worker-$n" env DHSCHED_NODE="worker-$n" DHSCHED_CAPACITY="$CAPACITY" \
        DHSCHED_PORT=$((PORT + 9 + n)) "$BIN/dhsched" worker
done
for ((n = 1; n <= WORKERS; n++)); do
    await "worker-$n" "http://127.0.0.1:$((PORT + 9 + n))/readyz" "${pids[first + n - 1]}"
done
echo "ready: Dispatch at http://127.0.0.1:$PORT, Kafka at $KAFKA, store $DHSCHED_STORE"
wait -n "${pids[@]}" || true
echo "a process ended; its log is in $RUN" >&2
exit 1
