#!/bin/sh
# A throw-away PostgreSQL for the suites under tests/postgres: on a unix socket in a temporary folder, no port, no password.
#
#     export POINTSMAN_TEST_POSTGRES="$(deploy/dev/postgres.sh start)"
#     deploy/dev/postgres.sh stop
#
# As root the server runs as user `postgres` (it refuses to run as root), and Debian's package is installed if it is missing.
set -eu

home="${TMPDIR:-/tmp}/pointsman-postgres-$(id -u)"

find_server() {
    for folder in /usr/lib/postgresql/*/bin /usr/local/bin /usr/bin; do
        if [ -x "$folder/initdb" ] && [ -x "$folder/pg_ctl" ] && [ -x "$folder/postgres" ]; then
            echo "$folder"
            return
        fi
    done
}

run() {
    if [ "$(id -u)" = 0 ]; then
        (cd / && runuser -u postgres -- "$@")
    else
        "$@"
    fi
}

start() {
    server="$(find_server)"
    if [ -z "$server" ] && [ "$(id -u)" = 0 ]; then
        echo "installing postgresql" >&2
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql; } >&2
        server="$(find_server)"
    fi
    if [ -z "$server" ]; then
        echo "no PostgreSQL server found: install the package postgresql" >&2
        exit 1
    fi
    if [ ! -f "$home/data/postmaster.pid" ] || ! run "$server/pg_ctl" -D "$home/data" status >/dev/null 2>&1; then
        rm -rf "$home"
        mkdir -m 0700 "$home"
        if [ "$(id -u)" = 0 ]; then chown postgres "$home"; fi
        run "$server/initdb" -D "$home/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >"${TMPDIR:-/tmp}/pointsman-initdb.$$" 2>&1 || {
            cat "${TMPDIR:-/tmp}/pointsman-initdb.$$" >&2
            exit 1
        }
        rm -f "${TMPDIR:-/tmp}/pointsman-initdb.$$"
        run "$server/pg_ctl" -D "$home/data" -l "$home/log" -w -t 60 \
            -o "-c listen_addresses='' -c unix_socket_directories='$home' -c max_connections=60" start >/dev/null || {
            cat "$home/log" >&2
            exit 1
        }
    fi
    echo "postgresql://postgres@/postgres?host=$home"
}

stop() {
    server="$(find_server)"
    if [ -n "$server" ] && [ -f "$home/data/postmaster.pid" ]; then
        run "$server/pg_ctl" -D "$home/data" -m fast -w stop >/dev/null
    fi
    rm -rf "$home"
}

case "${1:-}" in
start) start ;;
stop) stop ;;
*)
    echo "usage: $0 start|stop" >&2
    exit 2
    ;;
esac
