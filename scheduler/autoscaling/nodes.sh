#!/bin/sh
# Sets how many nodes are wanted: the replicas of the Deployment carico-nodes, whose pods share no node.
#
# One more than there are nodes while pods of Carico have waited for capacity for WAITED seconds; one less when none
# waits and the nodes together have room for SPARE pods more than one node holds. Between LEAST and MOST.
set -eu
WAITED=${WAITED:-60} SPARE=${SPARE:-10} LEAST=${LEAST:-0} MOST=${MOST:-10} NAMESPACE=${NAMESPACE:-carico-system}

# Pods that the plugin Capacity rejected: their condition says what the nodes had too little of.
before=$(date -u -d "@$(($(date +%s) - WAITED))" +%Y-%m-%dT%H:%M:%SZ)
conditions='{range .items[*].status.conditions[?(@.type=="PodScheduled")]}{.reason}|{.lastTransitionTime}|{.message}{"\n"}{end}'
waiting=$(kubectl get pods --all-namespaces --field-selector=status.phase=Pending -o jsonpath="$conditions" |
  awk -F '|' -v before="$before" '
    $1 == "Unschedulable" && $2 <= before && $3 ~ /had too little|had too much|had no free capacity/ { count++ }
    END { print count + 0 }')
nodes=$(kubectl get nodes --no-headers | grep -c . || true)
# Room of all nodes together, and of the roomiest.
spare=$(kubectl get nodecapacities --no-headers -o custom-columns=C:.status.podCapacity,R:.status.reserved,S:.status.stale |
  awk '$3 == "false" { free = $1 - $2; sum += free; if (free > most) most = free } END { print int(sum - most) }')
now=$(kubectl -n "$NAMESPACE" get deployment carico-nodes -o jsonpath='{.spec.replicas}')

wanted=$now
if [ "$waiting" -gt 0 ]; then
  wanted=$((nodes + 1))
elif [ "$spare" -ge "$SPARE" ] && [ "$now" -gt 0 ]; then
  wanted=$((now - 1))
fi
[ "$wanted" -le "$MOST" ] || wanted=$MOST
[ "$wanted" -ge "$LEAST" ] || wanted=$LEAST
echo "$waiting pods wait for capacity, $nodes nodes, room for $spare pods without the roomiest node: $now placeholders, wanted $wanted"
[ "$wanted" = "$now" ] || kubectl -n "$NAMESPACE" scale deployment carico-nodes --replicas="$wanted"
