#!/bin/sh
# Installs the servers that the tests start: Redis 7 or newer with its sentinel, PostgreSQL 15 or
# newer, MariaDB 10.6 or newer, ZooKeeper 3.8 or newer, and Java 17 or newer for it and for Spark.
# Each test starts its own, which end with it; no daemon is started.
set -eu

has_redis() {
    command -v redis-sentinel >/dev/null 2>&1 || return 1
    major=$(redis-server --version 2>/dev/null | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')
    [ "${major:-0}" -ge 7 ]
}

has_java() {
    major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge 17 ]
}

has_zookeeper() {
    has_java && [ -e /usr/share/java/zookeeper.jar ]
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

# Debian's `zookeeper` adds commands and a user to `libzookeeper-java`, and a Java with a desktop.
packages=""
has_redis || packages="redis-server redis-sentinel"
has_postgres || packages="$packages postgresql"
has_mariadb || packages="$packages mariadb-server"
has_zookeeper || packages="$packages libzookeeper-java"
has_java || packages="$packages default-jre-headless"
if [ -z "$packages" ]; then
    exit 0
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
fi

# Debian starts a daemon with the package, unless this file says no. One that is there stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ] && $as_root sh -c 'printf "#!/bin/sh\nexit 101\n" >"$1" && chmod +x "$1"' \
    sh "$policy" 2>/dev/null; then
    trap '$as_root rm -f "$policy"' EXIT
fi

echo "installing" $packages
# What went wrong is seen by looking for the servers again: an update may fail for another source.
$as_root apt-get update >/dev/null 2>&1 || true
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends $packages >/dev/null 2>&1 || true

status=0
if ! has_redis; then
    echo "the tests need redis-server 7 or newer: install it, e.g. apt-get install redis-server" >&2
    status=1
fi
if ! has_zookeeper; then
    echo "the tests need ZooKeeper 3.8 and Java 17, or newer: install them, e.g. apt-get install" \
        "libzookeeper-java default-jre-headless" >&2
    status=1
fi
if ! has_postgres; then
    echo "the tests need PostgreSQL 15 or newer: install it, e.g. apt-get install postgresql" >&2
    status=1
fi
if ! has_mariadb; then
    echo "the tests need MariaDB 10.6 or newer: install it, e.g. apt-get install mariadb-server" >&2
    status=1
fi
exit "$status"
