#!/bin/sh
# The simplest collector with curl alone: submit, poll, result, cancel. README.md says what must run meanwhile.
set -eu
API=${API:-http://127.0.0.1:8008}
KEY=${KEY:-change-me-0123456789}
SITE=${SITE:-http://127.0.0.1:8701}
ENDS='completed completed_with_errors failed cancelled'

say() { printf '\n== %s\n' "$*"; }

# api calls the API: a path, and more arguments of curl.
api() {
	path=$1
	shift
	curl -fsS "$API$path" -H "Authorization: Bearer $KEY" "$@"
}

# value prints the first value that has a name in some JSON.
value() { printf '%s' "$2" | tr ',{' '\n\n' | sed -n 's/^"'"$1"'":"\{0,1\}\([^"}]*\).*/\1/p' | head -n 1; }

# submit submits a job over the pages that are named, and prints its id.
submit() {
	urls=
	for page; do urls="$urls${urls:+, }\"$SITE/$page\""; done
	answer=$(api /v1/jobs -H 'Content-Type: application/json' \
		-d "{\"urls\": [$urls], \"fields\": {\"title\": {\"selector\": \"title\", \"required\": true}}}")
	value job_id "$answer"
}

# poll waits until a job is in one of some states, and prints which.
poll() {
	while :; do
		answer=$(api "/v1/jobs/$1")
		state=$(value state "$answer")
		case " $2 " in *" $state "*)
			echo "$state"
			return
			;;
		esac
		sleep 1
	done
}

# cancel cancels a job, and prints the state in which it is then.
cancel() {
	answer=$(api "/v1/jobs/$1/cancel" -X POST)
	value state "$answer"
}

# result prints page and title of each record of an ended job.
result() {
	answer=$(api "/v1/jobs/$1/result?format=ndjson")
	printf '%s\n' "$answer" |
		sed 's|.*"source_url":"[^"]*/\([^"]*\)".*"fields":{"title":"\([^"]*\)"}.*|\1: \2|' | sort
}

say 'submit, poll, result'
job=$(submit one.html two.html)
echo "submitted $job"
state=$(poll "$job" "$ENDS")
echo "it ended as $state"
result "$job"

say 'cancel: what has ended stays as it ended'
state=$(cancel "$job")
echo "it is $state"

say 'a page without a title'
job=$(submit one.html untitled.html)
echo "submitted $job"
state=$(poll "$job" "$ENDS")
echo "it ended as $state"
result "$job"
errors=$(api "/v1/jobs/$job/errors")
page=$(value source_url "$errors")
echo "${page##*/}: $(value error_type "$errors"): $(printf '%s' "$errors" | sed 's/.*"message":"\([^"]*\)".*/\1/')"

say 'cancel a job that waits for a page'
job=$(submit one.html slow.html)
echo "submitted $job"
state=$(poll "$job" "running $ENDS")
echo "it is $state"
state=$(cancel "$job")
echo "it is $state"
