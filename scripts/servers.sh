#!/bin/sh
# Installs the servers that the tests start: Redis 7 or newer, and its sentinel. Each test starts
# its own, which end with it; no daemon is started.
set -eu

has_servers() {
    command -v redis-sentinel >/dev/null 2>&1 || return 1
    major=$(redis-server --version 2>/dev/null | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')
    [ "${major:-0}" -ge 7 ]
}

if has_servers; then
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

echo "installing redis-server and redis-sentinel"
# What went wrong is seen by looking for the servers again: an update may fail for another source.
$as_root apt-get update >/dev/null 2>&1 || true
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends redis-server redis-sentinel \
    >/dev/null 2>&1 || true

if ! has_servers; then
    echo "the tests need redis-server 7 or newer: install it, e.g. apt-get install redis-server" >&2
    exit 1
fi
