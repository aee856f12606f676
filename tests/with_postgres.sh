#!/usr/bin/env bash
# Runs a command beside a PostgreSQL of its own on loopback, whose URL is in NEXUS_TEST_POSTGRES:
#
#     tests/with_postgres.sh cargo nextest run -p nexus store
#
# The server and its data are gone when the command ends, however it ends. PostgreSQL refuses to run as root: then it
# runs as the user `postgres`, which its Debian package makes.

set -u
[ $# -gt 0 ] || { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2; }
bin=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | sort -V | tail -n 1)
[ -x "$bin/postgres" ] || { echo "PostgreSQL is not installed: apt-get install postgresql" >&2; exit 1; }

as=()
folder=$(mktemp -d /tmp/nexus-postgres.XXXXXX) || exit 1
if [ "$(id -u)" -eq 0 ]; then
    as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    chown postgres "$folder"
fi
server=
end() {
    [ -z "$server" ] || { kill -INT "$server" && wait "$server"; } 2> /dev/null
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM HUP

cd "$folder" || exit 1
"${as[@]}" "$bin/initdb" -D "$folder/data" -A trust -U postgres --no-sync > "$folder/initdb.log" 2>&1 ||
    { cat "$folder/initdb.log" >&2; exit 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${as[@]}" "$bin/postgres" -D "$folder/data" -h 127.0.0.1 -p "$port" -k "$folder" -c fsync=off -c max_connections=400 \
    > "$folder/log" 2>&1 &
server=$!
for _ in $(seq 200); do
    "$bin/pg_isready" -q -h 127.0.0.1 -p "$port" && break
    kill -0 "$server" 2> /dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.05
done
cd "$OLDPWD" || exit 1
export NEXUS_TEST_POSTGRES=postgres://postgres@127.0.0.1:$port/postgres
"$@" &
wait $!
