package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"example.com/trawl/pkg/crawl"
)

// All key names. Scripts append the same names to root and job; a test compares.
//
//	trawl:tenants         SET   tenants that ever submitted: what the sweep visits
//	trawl:log             STR   the level that all processes log from, as "debug"; always with a time to live
//	{t:T}                 HASH  seq, replicas; max_queued, max_running, pages_per_day, submissions_per_second, as the
//	                            service grants them, and own:max_queued …, the tenant's own; tokens, tokens_at, of
//	                            its submissions; day, the last on which a page was settled; ended:STATE, how many
//	                            of its jobs ever ended so
//	{t:T}:day:D           STR   pages of its jobs that were settled on day D since the epoch, of that day alone
//	{t:T}:collections     ZSET  names of its collections, all with score 0; the tenant's hash has collections, how many were ever made
//	{t:T}:c:NAME          HASH  a collection: def and form, its definition; data, the N of what it holds; created, updated, ms;
//	                            seq, the number of its last item; series and missing, how many there are
//	{t:T}:d:N:ids         HASH  digest of the key → fingerprint, digest of the page that gave it last, number of an item
//	{t:T}:d:N:item:K      HASH  "created updated job" and JSON of items by number, a thousand a hash
//	{t:T}:d:N:counted:K   HASH  what of them is counted, as of items.lua, likewise
//	{t:T}:d:N:order       ZSET  "number series" of every item, all with score 0
//	{t:T}:d:N:facet:F     ZSET  value of facet F by the number of items that have it, below zero
//	{t:T}:d:N:find:F      ZSET  value, NUL and number of each of these items, all with score 0
//	{t:T}:d:N:num:F       ZSET  "millionths:number" of items by the whole part of their number F
//	{t:T}:d:N:sums        HASH  F.high and F.low, the sum of these numbers in millionths: high billions, and low
//	{t:T}:d:N:series      HASH  number of each series of crawls, see crawl.Plan.Series
//	{t:T}:d:N:since       HASH  when the last complete crawl of a series, by number, was submitted, ms
//	{t:T}:d:N:seen:S      ZSET  items that series number S saw last, by when it did, ms
//	{t:T}:d:N:visits      HASH  digest of a page's URL → numbers of the items it gave, a line feed, the Visit
//	{t:T}:d:N:visits_old  HASH  the same of those before
//	{t:T}:dropped         ZSET  data of deleted collections by how many of its keys are freed
//	{t:T}:none            —     never there: removing it is a write that needs no memory
//	{t:T}:counted         ZSET  nonces of submissions by when they took a token, ms; for a minute
//	{t:T}:jobs            ZSET  job id by creation number
//	{t:T}:waiting         ZSET  jobs that wait at the run gate, by creation number
//	{t:T}:running         SET   jobs that passed it and have not ended, nor been paused
//	{t:T}:paused          SET   jobs that are paused, or are cancelling since
//	{t:T}:flying          SET   jobs outside the gate that had pages in flight when they were paused, when they were resumed,
//	                            or when a sweep looked last: these count for the pages of the day
//	{t:T}:due             ZSET  job id by the time at which a sweep must look at it, ms
//	{t:T}:outbox          ZSET  job with events to deliver by the time of the next try or the end of its claim, ms
//	{t:T}:outbox:HOST     ZSET  those that found their receiver HOST busy, by the time at which they were due, ms
//	{t:T}:idem:H          HASH  job, digest; H is the SHA-256 of the idempotency key
//	{t:T}:j:ID            HASH  the job, with the format of all that is kept of it (absent: 1); while it is paused paused_until,
//	                            when it ends at the latest, ms, then resumed, when it was resumed last; until it runs again
//	                            time_left, ms of its time limit; cancel_wanted, if an older process was asked to cancel it.
//	                            A tombstone holds gone and digest alone, and untold, the events that
//	                            nobody was told of, until a worker reports them
//	{t:T}:j:ID:spec       STR   as submitted
//	{t:T}:j:ID:plan       STR   what workers work by
//	{t:T}:j:ID:webhook    HASH  id, url, host, secret, events; n (events so far), head (the first not settled), claim and
//	                            settled (claims), and of event N: N.type, N.at, N.job, N.state, N.tries, N.next …
//	{t:T}:j:ID:queued     LIST  rows to lease, oldest first
//	{t:T}:j:ID:leased     ZSET  rows by the slice that holds them
//	{t:T}:j:ID:deferred   ZSET  rows by the time they are due, ms
//	{t:T}:j:ID:cancelled_queued, :cancelled_deferred, :cancelled_leased
//	                            the same containers after the end of a job cut short
//	{t:T}:j:ID:slices     ZSET  live slices by deadline, ms
//	{t:T}:j:ID:retiring   SET   slices that lease nothing more
//	{t:T}:j:ID:seen       SET   dedupe keys of admitted URLs
//	{t:T}:j:ID:refseen    SET   dedupe keys of refused URLs, bounded
//	{t:T}:j:ID:refused    LIST  "reason depth parent url", bounded as refseen
//	{t:T}:j:ID:claims     HASH  dedupe key of a final URL → the record that has it
//	{t:T}:j:ID:patterns   HASH  URLs admitted of each pattern that has a budget
//	{t:T}:j:ID:bodies     HASH  digest of a body → the first record with these bytes
//	{t:T}:j:ID:done       BITS  n of committed rows, so that a commit sent twice is known
//	{t:T}:j:ID:moved      SET   "slice row" of rows that a commit sent back, "slice sN part" of parts of sitemap N
//	{t:T}:j:ID:maps       ZSET  rows of sitemaps by the time they are due, ms
//	{t:T}:j:ID:maps_leased
//	                      ZSET  rows of sitemaps by the slice that holds them
//	{t:T}:j:ID:maps_done  BITS  n of sitemaps that are settled, as done
//	{t:T}:j:ID:mapurls    HASH  URL of a sitemap by its n
//	{t:T}:j:ID:lastmod    HASH  when a page was last changed, in ms by its n, as a sitemap says
//	{t:T}:j:ID:rec:K      HASH  records by number, a thousand a hash; those of the items of a page, behind that of
//	                            the page, have of (its number), item, fields and change
//	{t:T}:j:ID:body:K     HASH  content of pages by the number of their record, a thousand a hash, as of content.go
//	{t:T}:j:ID:err:K      HASH  failed pages by number, a thousand a hash
//	{t:T}:j:ID:skip:R     LIST  rows skipped for reason R, a tab, and the record or URL that it is about
//	{a}:tenants           ZSET  names of the tenants that something is kept of, all with score 0
//	{a}:t:NAME            HASH  created, updated, sources (JSON; absent: all that the service allows), quota (JSON), suspended, nonce, change
//	{a}:keys:NAME         HASH  digest of each key of the tenant by the key's id
//	{a}:key:DIGEST        HASH  tenant, id, label, created, expires, life (ms; absent: never ends)
//	{a}:gone:NAME:ID      STR   the call that ended the key by hand, for a minute
//	{h:HOST}:slots        ZSET  "slice/k" by deadline, ms
//	{h:HOST}:next         STR   the next start time, ms
//	{h:HOST}:line         ZSET  slices that wait for a slot, by the time they came
//	{h:HOST}:asked        ZSET  the same by the time they last asked
//	{h:HOST}:robots:S:P   HASH  robots.txt by scheme S, as it speaks to product token P (of a caller's user agent with its digest): state, rules, why, learned, until, tries, claim, claimed_until
const tenantsKey = "trawl:tenants"

// perHash is the number of records in one hash: a page of results is then one or
// two HMGETs, and freeing a hash never blocks for long.
const perHash = 1000

func rootKey(tenant string) string { return "{t:" + tenant + "}" }

func jobKey(j crawl.JobRef) string { return rootKey(j.Tenant) + ":j:" + j.ID }

func idemKey(tenant, key string) string {
	sum := sha256.Sum256([]byte(key))
	return rootKey(tenant) + ":idem:" + hex.EncodeToString(sum[:])
}

func chunkKey(j crawl.JobRef, kind string, seq int64) string {
	return jobKey(j) + ":" + kind + ":" + strconv.FormatInt((seq-1)/perHash, 10)
}

func hostKey(host, part string) string { return "{h:" + host + "}:" + part }

// What is kept of tenants, and their keys, has one hash tag, {a}: each call is then one script, and an
// ACL can keep it from workers, which need none of it.

const tenantDirKey = "{a}:tenants"

func tenantKey(name string) string { return "{a}:t:" + name }

func tenantKeysKey(name string) string { return "{a}:keys:" + name }

func apiKeyKey(digest [sha256.Size]byte) string { return "{a}:key:" + hex.EncodeToString(digest[:]) }
