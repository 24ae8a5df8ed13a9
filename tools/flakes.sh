#!/usr/bin/env bash
# Finds tests that fail now and then: the quick tests N times alone and N times beside `stress-ng --cpu 2`. Ends with
# the tests that failed and how often; the output of every run stays in the folder that is printed first.
#
#     tools/flakes.sh [N] [PYTEST ARGUMENT ...]     e.g. tools/flakes.sh 3 tests/wire -k stream
set -uo pipefail
cd "$(dirname "$0")/.."
times=${1:-10}
shift || true
case "$times" in
  '' | *[!0-9]*) echo "flakes: N is '$times', not a number; e.g. make flakes N=10" >&2; exit 2 ;;
esac
if ! command -v stress-ng >/dev/null; then echo "flakes: there is no stress-ng; on Debian install stress-ng" >&2; exit 2; fi

logs=$(mktemp -d "${TMPDIR:-/tmp}/carico-flakes.XXXXXX")
echo "output of the runs: $logs"
load=
trap '[ -z "$load" ] || kill "$load" 2>/dev/null' EXIT
failed=0

runs() { # name; the tests stay those of the command line
  local name=$1 number log
  shift
  for number in $(seq "$times"); do
    log=$logs/$name-$number.log
    # A new seed each time: under CI=true property tests would repeat the same examples.
    env -u CI .venv/bin/pytest -q -p no:cacheprovider -m "not cluster and not slow and not long" "$@" >"$log" 2>&1
    case $? in
      0) ;;
      1) failed=1 ;;
      *) tail -5 "$log" >&2; echo "flakes: pytest did not run; see $log" >&2; exit 2 ;;
    esac
    echo "$name $number of $times: $(tail -1 "$log")"
  done
}

runs alone "$@"
stress-ng --quiet --cpu 2 &
load=$!
runs stressed "$@"

if [ "$failed" = 0 ]; then echo "no test failed in $((2 * times)) runs"; exit 0; fi
echo "failures, and how often in $((2 * times)) runs:"
cat "$logs"/*.log | sed -nE 's/^(FAILED|ERROR) ([^ ]+).*/\2/p' | sort | uniq -c | sort -rn
exit 1
