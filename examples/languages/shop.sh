#!/bin/sh
# Publishes three orders and bills them, with curl alone: sh shop.sh http://127.0.0.1:8380
set -eu
topic="$1/v1/topics/shell-orders"

ask() { # ask METHOD URL [BODY]
    curl --silent --show-error --fail-with-body -X "$1" "$2" \
        -H 'content-type: application/json' ${TOKEN:+-H "authorization: Bearer $TOKEN"} \
        --data "${3:-{\}}"
}

ask PUT "$topic" '{"kind": "ordered", "slots": 4}' >/dev/null
ask PUT "$topic/groups/billing" >/dev/null
for number in 1 2 3; do
    # Sent again under the same id, it is a duplicate: so a script may simply be run again.
    ask POST "$topic/messages" "{\"key\": \"ann\", \"id\": \"order-$number\", \"body\": $number}"
    echo
done

billed=0
while [ "$billed" -lt 3 ]; do
    reply=$(ask POST "$topic/groups/billing/pull" '{"max": 1, "wait": "20s", "lease": "30s"}')
    receipt=$(printf '%s' "$reply" | sed -n 's/.*"receipt":"\([^"]*\)".*/\1/p')
    [ -n "$receipt" ] || continue
    printf '%s' "$reply" | sed 's/.*"body":\([0-9]*\).*/billed order \1\n/'
    ask POST "$topic/groups/billing/settle" "{\"ack\": [\"$receipt\"]}" >/dev/null
    billed=$((billed + 1))
done
echo "all billed"
