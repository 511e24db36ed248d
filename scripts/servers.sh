#!/bin/sh
# Installs the servers that the tests start: Redis 7 or newer, PostgreSQL 15 or newer, MariaDB 10.6
# or newer, ZooKeeper 3.8 or newer, Java 17 or newer for it and for Spark, openssl for their
# certificates, promtool, which tries the alert rules, Chromium, which looks at the console, and curl,
# Node.js and npm, which call the gateway. Each test starts its own, which end with it; no daemon is
# started.
set -eu

# Debian keeps servers where only root's PATH leads.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

has_redis() {
    major=$(redis-server --version 2>/dev/null | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')
    [ "${major:-0}" -ge 7 ]
}

has_java() {
    major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge 17 ]
}

has_zookeeper() {
    [ -e /usr/share/java/zookeeper.jar ]
}

has_postgres() {
    for server in /usr/lib/postgresql/*/bin/postgres "$(command -v postgres || true)"; do
        [ -x "$server" ] || continue
        major=$("$server" --version | sed -n 's/[^0-9]*\([0-9]*\).*/\1/p')
        [ "${major:-0}" -ge 15 ] && return 0
    done
    return 1
}

has_mariadb() {
    command -v mariadbd >/dev/null 2>&1 && command -v mariadb-install-db >/dev/null 2>&1
}

has_openssl() {
    command -v openssl >/dev/null 2>&1
}

has_promtool() {
    command -v promtool >/dev/null 2>&1
}

has_node() {
    command -v node >/dev/null 2>&1 && command -v curl >/dev/null 2>&1 &&
        command -v npm >/dev/null 2>&1
}

has_chromium() {
    command -v chromium >/dev/null 2>&1
}

# Debian's packages of all that is not there; its `zookeeper` would add a user and a desktop's Java.
missing() {
    has_redis || echo redis-server
    has_postgres || echo postgresql
    has_mariadb || echo mariadb-server
    has_zookeeper || echo libzookeeper-java
    has_java || echo default-jre-headless
    has_openssl || echo openssl
    has_promtool || echo prometheus
    has_chromium || echo chromium
    has_node || echo curl nodejs npm
}

packages=$(missing)
if [ -z "$packages" ]; then
    exit 0
fi

give_up() {
    cat >&2 <<END
The tests start servers of their own, and these cannot be found here:
$(missing | sed -e 's/^redis-server$/  Redis 7 or newer (redis-server)/' \
    -e 's/^postgresql$/  PostgreSQL 15 or newer (postgresql)/' \
    -e 's/^mariadb-server$/  MariaDB 10.6 or newer (mariadb-server)/' \
    -e 's/^libzookeeper-java$/  ZooKeeper 3.8 or newer (libzookeeper-java)/' \
    -e 's/^default-jre-headless$/  Java 17 or newer, for ZooKeeper and Spark (default-jre-headless)/' \
    -e 's/^openssl$/  openssl, for certificates (openssl)/' \
    -e 's/^prometheus$/  promtool, for the alert rules (prometheus)/' \
    -e 's/^chromium$/  Chromium, for the console (chromium)/' \
    -e 's/^curl nodejs npm$/  curl, Node.js and npm, for examples in other languages (curl, nodejs, npm)/')
$1
END
    exit 1
}

script="$(cd "$(dirname "$0")" && pwd)/servers.sh"
if ! command -v apt-get >/dev/null 2>&1; then
    give_up "Install them by your system's own means, then try again."
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    if ! $as_root true >/dev/null 2>&1; then
        give_up "To install them without starting any daemon, run this as a user who may use sudo:
    sudo sh $script"
    fi
fi

# Debian starts a daemon with the package, unless this file says no. One that is there stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ] && $as_root sh -c 'printf "#!/bin/sh\nexit 101\n" >"$1" && chmod +x "$1"' \
    sh "$policy" 2>/dev/null; then
    trap '$as_root rm -f "$policy"' EXIT
fi

echo "installing" $packages
log=$(mktemp)
# What went wrong is seen by looking for the servers again: an update may fail for another source.
$as_root apt-get update >"$log" 2>&1 || true
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends $packages >>"$log" 2>&1 || true
if [ -n "$(missing)" ]; then
    give_up "apt-get could not install them; its words end:
$(tail -n 12 "$log")"
fi
rm -f "$log"
