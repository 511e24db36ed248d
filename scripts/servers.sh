#!/bin/sh
# Installs the servers that the tests start: Redis 7 or newer, and its sentinel. They run on ports
# of their own and end with the tests; no daemon is started.
set -eu

has_servers() {
    command -v redis-sentinel >/dev/null 2>&1 || return 1
    major=$(redis-server --version 2>/dev/null | sed -n 's/.* v=\([0-9][0-9]*\)\..*/\1/p')
    [ "${major:-0}" -ge 7 ]
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Debian starts a daemon with the package, unless this file forbids it. One that is there stays.
policy=/usr/sbin/policy-rc.d
forbid_daemons() {
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        as_root sh -c 'printf "#!/bin/sh\nexit 101\n" >"$1" && chmod +x "$1"' sh "$policy"
    fi
}

install_servers() {
    command -v apt-get >/dev/null 2>&1 || return 1
    echo "installing redis-server and redis-sentinel"
    as_root true && forbid_daemons || return 1
    # An update may fail for another source than the one that is needed.
    as_root apt-get -qq update || true
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --yes --no-install-recommends redis-server redis-sentinel
}

if ! has_servers; then
    log=$(mktemp)
    install_servers 2>"$log" | grep '^installing ' || true
    rm -f "$log"
fi
