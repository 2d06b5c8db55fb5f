#!/bin/sh
# A throw-away OpenSearch with k-NN for the suites under tests/opensearch and for `make demo-opensearch`: on loopback, no Docker.
#
#     deploy/dev/opensearch.sh start            one node; prints its address, starts nothing where it runs already
#     deploy/dev/opensearch.sh start 3          three nodes; prints three addresses, one a line
#     deploy/dev/opensearch.sh kill 2           kills node 2 as a crash would; `start 3` brings it back with its data
#     deploy/dev/opensearch.sh pause|resume 2   a node that answers nothing for a while
#     deploy/dev/opensearch.sh stop             stops all nodes and removes their data; what was fetched is kept
#     deploy/dev/opensearch.sh home             the folder in which nodes keep their data
#
# Fetched once by Maven into its own cache and checked by SHA-256. Needs a JDK of version 21 or later (OPENSEARCH_JAVA_HOME, or one
# beside the others of this machine). As root, nodes run as user `nobody` (OpenSearch refuses to run as root).
# HEAP (default 512m, with three nodes 320m) is each node's memory, PORT (default 19201) the first of the ports, SETTINGS further
# lines of a new node's opensearch.yml.
set -eu

version=3.5.0
zip_sha=b676ad392c95a94d8d2bd8785b8b922c7811536daf6a9ec0c7277a34bd8a17a9
knn_sha=99fdf3ac9ef95974e276298b83a58532bf21ba13bd5fd96a4b59465b7e613309
home="${TMPDIR:-/tmp}/pointsman-opensearch-$(id -u)"
engine="$home/opensearch-$version"
port="${PORT:-$(cat "$home/port" 2>/dev/null || echo 19201)}"
wait_s=180

say() { echo "$@" >&2; }

fail() {
    say "$@"
    exit 1
}

run() {
    if [ "$(id -u)" = 0 ]; then
        (cd / && runuser -u nobody -- "$@")
    else
        "$@"
    fi
}

find_java() {
    for folder in "${OPENSEARCH_JAVA_HOME:-}" "${JAVA_HOME:-}" /usr/lib/jvm/* /opt/java/*; do
        if [ -n "$folder" ] && [ -x "$folder/bin/java" ] && [ -r "$folder/release" ] &&
            [ "$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$folder/release")" -ge 21 ] 2>/dev/null; then
            echo "$folder"
            return
        fi
    done
}

get() { # GROUP NAME VERSION SHA -> the archive's path
    cache="${MAVEN_CACHE:-$HOME/.m2/repository}" # told to Maven, which else goes by the user's entry and not by HOME
    archive="$cache/$(echo "$1" | tr . /)/$2/$3/$2-$3.zip"
    if [ ! -f "$archive" ]; then
        if ! command -v mvn >/dev/null && [ "$(id -u)" = 0 ]; then
            say "installing maven"
            { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends maven; } >&2
        fi
        command -v mvn >/dev/null || fail "no Maven found: install the package maven"
        say "fetching $2 $3 (once)"
        mvn -q -B -Dmaven.repo.local="$cache" dependency:get -Dtransitive=false -Dartifact="$1:$2:$3:zip" >&2
    fi
    [ -f "$archive" ] || fail "$2 $3 could not be fetched: see what Maven said above"
    echo "$4  $archive" | sha256sum -c --quiet - >&2 || fail "$archive is not what it should be: remove it and try again"
    echo "$archive"
}

fetch() {
    if [ -d "$engine/plugins/opensearch-knn" ]; then return; fi
    zip="$(get org.opensearch.distribution.integ-test-zip opensearch "$version" "$zip_sha")"
    knn="$(get org.opensearch.plugin opensearch-knn "$version.0" "$knn_sha")"
    rm -rf "$engine"
    mkdir -p "$home"
    (cd "$home" && python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall()' "$zip")
    chmod +x "$engine"/bin/*
    OPENSEARCH_JAVA_HOME="$java" "$engine/bin/opensearch-plugin" install -b "file://$knn" >/dev/null 2>&1 ||
        fail "the k-NN plug-in could not be installed"
    if [ "$(id -u)" = 0 ]; then chown -R nobody "$home"; fi
}

pid_of() { # NODE -> its process, known by where its configuration is: a file with a number may be late, lost or of another process
    grep -zxls -- "-D[o]pensearch.path.conf=$home/node$1/config" /proc/[0-9]*/cmdline | head -1 | cut -d/ -f3
}

up() { # NODE
    [ -n "$(pid_of "$1")" ]
}

dead() { # NODE: looked at twice, since a process that begins is not yet called what it becomes
    if up "$1"; then return 1; fi
    sleep 3
    ! up "$1"
}

configure() { # NODE COUNT
    mkdir -p "$home/node$1"
    cp -R "$engine/config" "$home/node$1/"
    {
        echo "cluster.name: pointsman-$port"
        echo "node.name: n$1"
        echo "network.host: 127.0.0.1"
        echo "http.port: $((port + $1 - 1))"
        echo "transport.port: $((port + 99 + $1))"
        echo "path.data: $home/node$1/data"
        echo "path.logs: $home/node$1/logs"
        echo "bootstrap.memory_lock: false"
        echo "action.auto_create_index: false"
        echo "cluster.routing.allocation.disk.threshold_enabled: false"
        echo "${SETTINGS:-}"
        if [ "$2" = 1 ]; then
            echo "discovery.type: single-node"
        else
            echo "discovery.seed_hosts: ['127.0.0.1:$((port + 100))', '127.0.0.1:$((port + 101))', '127.0.0.1:$((port + 102))']"
            echo "cluster.initial_cluster_manager_nodes: [n1, n2, n3]"
        fi
    } >"$home/node$1/config/opensearch.yml"
    if [ "$(id -u)" = 0 ]; then chown -R nobody "$home/node$1"; fi
}

launch() { # NODE COUNT
    if up "$1"; then return; fi
    heap="${HEAP:-$([ "$2" = 1 ] && echo 512m || echo 320m)}"
    [ -d "$home/node$1/config" ] || configure "$1" "$2"
    run env OPENSEARCH_JAVA_HOME="$java" OPENSEARCH_PATH_CONF="$home/node$1/config" \
        OPENSEARCH_JAVA_OPTS="-Xms$heap -Xmx$heap" \
        nice -n "${NICE:-0}" "$engine/bin/opensearch" -d >"$home/start$1.log" 2>&1 ||
        { cat "$home/start$1.log" >&2 && exit 1; }
}

free() { # PORT
    python3 -c 'import socket, sys; socket.create_server(("127.0.0.1", int(sys.argv[1])))' "$1" 2>/dev/null ||
        fail "port $1 is taken by another process: choose others by PORT=…, or stop it"
}

health() { # the cluster's colour and number of nodes as node 1 sees them, or nothing
    python3 - "$port" "$1" <<'PY'
import http.client, json, sys, urllib.request
first, count = int(sys.argv[1]), int(sys.argv[2])
try:
    for at in range(count):
        with urllib.request.urlopen(f"http://127.0.0.1:{first + at}/_cluster/health", timeout=5) as answer:
            seen = json.load(answer)
            if (seen["status"], seen["number_of_nodes"]) != ("green", count):
                sys.exit(1)
except (OSError, http.client.HTTPException):
    sys.exit(1)
PY
}

start() {
    count="$1"
    java="$(find_java)"
    [ -n "$java" ] || fail "OpenSearch needs a JDK of version 21 or later: name one by OPENSEARCH_JAVA_HOME"
    if [ -f "$home/count" ] && [ "$(cat "$home/count") $(cat "$home/port")" != "$count $port" ]; then stop; fi
    for node in $(seq "$count"); do up "$node" || free $((port + node - 1)); done
    fetch
    echo "$count" >"$home/count"
    echo "$port" >"$home/port"
    for node in $(seq "$count"); do launch "$node" "$count"; done
    waited=0
    until health "$count"; do
        waited=$((waited + 1))
        for node in $(seq "$count"); do
            if dead "$node"; then
                tail -n 20 "$home/start$node.log" "$home/node$node"/logs/*.log >&2 || true
                fail "node $node did not start"
            fi
        done
        [ "$waited" -lt "$wait_s" ] || { tail -n 20 "$home"/node*/logs/pointsman-"$port".log >&2 && fail "not green after $wait_s s"; }
        sleep 1
    done
    for node in $(seq "$count"); do echo "http://127.0.0.1:$((port + node - 1))"; done
}

stop() {
    for node in 1 2 3; do
        up "$node" || continue
        pid="$(pid_of "$node")"
        kill -CONT "$pid"
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 30); do
            up "$node" || break
            sleep 1
        done
        if up "$node"; then kill -9 "$pid"; fi
    done
    rm -rf "$home"/node* "$home/count" "$home/port"
}

signal() { # SIGNAL NODE
    up "$2" || fail "node $2 does not run"
    kill "-$1" "$(pid_of "$2")"
}

case "${1:-}" in
start)
    case "${2:-1}" in
    1 | 3) start "${2:-1}" ;;
    *) fail "one node or three" ;;
    esac
    ;;
kill)
    signal KILL "$2"
    while up "$2"; do sleep 0.1; done
    ;;
pause) signal STOP "$2" ;;
resume) signal CONT "$2" ;;
stop) stop ;;
home) echo "$home" ;;
*)
    say "usage: $0 start [1|3] | kill NODE | pause NODE | resume NODE | stop | home"
    exit 2
    ;;
esac
