#!/usr/bin/env bash
# The agent over REST, with curl and jq. usage: rest.sh, with BROKER_URL and BROKER_TOKEN.
set -euo pipefail
cd "$(dirname "$0")/plan"

call() { # METHOD PATH [curl's arguments]
  local answer
  answer=$(curl -sS --fail-with-body -X "$1" "$BROKER_URL/api/v1$2" -H "Authorization: Bearer $BROKER_TOKEN" "${@:3}") ||
    { echo "$answer" >&2; return 1; }
  printf '%s\n' "$answer"
}
run() { # PROGRAM
  jq -Rs '{language: "python", context: "default", code: .}' "$1" |
    call POST "/instances/$id/execute" -H "Content-Type: application/json" -d @- |
    jq -c --arg run "$1" '{run: $run, failed: (.status != "succeeded"),
      said: (if .status == "succeeded" then .stdout else .stderr end | rtrimstr("\n") | split("\n") | last)}'
}

id=$(call POST /instances -H "Content-Type: application/json" -d '{"language": "python"}' | jq -r .id)
trap 'call DELETE "/instances/$id" > /dev/null' EXIT
call PUT "/instances/$id/files/content?path=orders.csv" --data-binary @orders.csv > /dev/null

steps=()
while IFS=$'\t' read -r program mended; do
  step=$(run "$program"); steps+=("$step")
  if jq -e .failed <<< "$step" > /dev/null; then
    step=$(run "${mended:?$program has failed}"); steps+=("$step")
    jq -e '.failed | not' <<< "$step" > /dev/null || { echo "$mended has failed" >&2; exit 1; }
  fi
done < <(jq -r '.[] | [.run, .if_it_fails] | @tsv' plan.json)

result=$(call GET "/instances/$id/files/content?path=result.json")
chart=$(call GET "/instances/$id/files/content?path=chart.svg")
printf '%s\n' "${steps[@]}" | jq -S -s --argjson result "$result" --arg chart "$chart" '{chart: ($chart + "\n"), result: $result, steps: .}'
