#!/bin/sh
# Crawls JobRadar three times with curl alone: as it is, with one posting changed, with one gone. README.md says what
# must run meanwhile, and what comes out.
set -eu
API=${API:-http://127.0.0.1:8008}
KEY=${KEY:-change-me-0123456789}
SITE=${SITE:-http://127.0.0.1:8700}
cd "$(dirname "$0")"

say() { printf '\n== %s\n' "$*"; }

# api calls the API: a path, and more arguments of curl.
api() {
	path=$1
	shift
	curl -fsS "$API$path" -H "Authorization: Bearer $KEY" "$@"
}

# value prints the first value that has a name in some JSON.
value() { printf '%s' "$2" | tr ',{' '\n\n' | sed -n 's/^"'"$1"'":"\{0,1\}\([^"}]*\).*/\1/p' | head -n 1; }

# object prints the object that has a name in some JSON; it has no other in it.
object() { printf '%s' "$2" | sed 's/.*"'"$1"'":{\([^{}]*\)}.*/\1/'; }

# counts prints what a list of facet values counts, one a line.
counts() {
	printf '%s\n' "$2" | sed 's/.*"'"$1"'":\[\([^]]*\)\].*/\1/' | tr '{' '\n' |
		sed -n 's/.*"value":"\([^"]*\)".*"count":\([0-9]*\).*/  \2  \1/p'
}

# crawl submits spec.json, waits for the end of the job and prints its report.
crawl() {
	answer=$(sed "s|http://127.0.0.1:8700|$SITE|" spec.json |
		api /v1/jobs -w '\n%{http_code}' -H 'Content-Type: application/json' --data-binary @-)
	job=$(value job_id "$answer")
	echo "POST /v1/jobs: ${answer##*[!0-9]}, job $job"
	while :; do
		status=$(api "/v1/jobs/$job")
		state=$(value state "$status")
		echo "... $state: $(value processed "$status") of $(value total "$status") pages"
		case $state in completed | completed_with_errors | failed | cancelled) break ;; esac
		sleep 1
	done
	echo "it ended as $state"
	report=$(object report "$status")
	for name in list_pages discovered created updated unchanged missing; do
		echo "  $name: $(value $name "{$report")"
	done
}

# statistics prints the analytics of the collection.
statistics() {
	analytics=$(api '/v1/collections/jobs/analytics?top_n=10')
	echo "postings: $(value total "$analytics")"
	if [ "${1:-}" = all ]; then
		echo 'by city:'
		counts city "$analytics"
		echo 'top skills:'
		counts skills "$analytics"
	fi
	annual="{$(object salary_annual "$analytics")"
	echo "with a salary: $(value count "$annual")"
	echo "average annual salary: $(value avg "$annual")"
}

say 'the first crawl'
curl -fsS -X PUT "$SITE/-/edition/1"
crawl

say 'GET /v1/collections/jobs/items?page=1&size=20'
items=$(api '/v1/collections/jobs/items?page=1&size=20')
printf '%s\n' "$items" | sed 's/{"n":/\
&/g' | sed -n 's/^{"n":.*"fields":{"title":"\([^"]*\)","company":"[^"]*","city":"\([^"]*\)".*/... \1, \2/p'
echo "$(printf '%s' "$items" | grep -o '{"n":' | wc -l | tr -d ' ') of $(value total "$items")"

say 'GET /v1/collections/jobs/items?city=Berlin&skills=Java'
items=$(api '/v1/collections/jobs/items?city=Berlin&skills=Java')
echo "$(value total "$items")"

say 'GET /v1/collections/jobs/analytics?top_n=10'
statistics all

say 'one posting has another salary'
curl -fsS -X PUT "$SITE/-/edition/2"
crawl
statistics

say 'another posting is gone'
curl -fsS -X PUT "$SITE/-/edition/3"
crawl
items=$(api '/v1/collections/jobs/items?missing=true')
value source_url "$items" | sed 's|.*/|  it is |'
