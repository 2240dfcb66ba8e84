package store

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

// ofTenant are the keys of keys.go that belong to a tenant, and outlive its jobs without an end of
// their own. Each has a bound that does not depend on how many jobs there were.
var ofTenant = regexp.MustCompile(`^(|:collections|:c:[a-z0-9_-]+|:d:\d+:[a-z_]+(:\w+)?|:day:\d+)$`)

// fleeting are those that are there for a while, and have a time to live.
var fleeting = regexp.MustCompile(`^(:counted|:idem:[0-9a-f]{64}|:j:j[a-z2-7]{26})$`)

// left reads the names of the tenant's keys, each behind the tenant's own name, by the time that
// they have to live; -1 is for ever.
func (f *fixture) left(t *testing.T) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for _, key := range f.rdb.Keys(t.Context(), rootKey(f.tenant)+"*").Val() {
		out[strings.TrimPrefix(key, rootKey(f.tenant))] = f.rdb.PTTL(t.Context(), key).Val()
	}
	return out
}

// rich is a job that makes a key of every kind. It is in the middle of its life.
func (f *fixture) rich(t *testing.T, key string) (crawl.JobRef, *Slice, []crawl.Item) {
	t.Helper()
	n := f.job(t, key, 12)
	n.Quota = crawl.Quota{MaxRunning: 100, PagesPerDay: 10_000, SubmissionsPerSecond: 1000}
	n.Plan.Site, n.Plan.Sitemap, n.Plan.Concurrency, n.Plan.MaxPages = true, crawl.SitemapInclude, 24, 16
	n.Plan.MaxBytes, n.Plan.TimeLimit, n.Plan.Series, n.RetryOf = 1000, time.Hour, "s", "jother"
	n.Plan.Collection = &crawl.Collection{Name: "pages", Key: crawl.KeySourceURL, Facets: []string{"city"}, Numbers: []string{"price"}}
	n.Plan.Webhook = &crawl.Webhook{URL: "http://hooks.test/", Events: crawl.EventTypes}
	f.create(t, n)
	sl := f.begin(t, n.Job)
	items := f.exchange(t, sl, Exchange{Lease: 24}).Items
	at := slices.IndexFunc(items, func(it crawl.Item) bool { return it.Kind == crawl.ItemSitemap })
	if at < 0 || len(items) < 12 {
		t.Fatalf("leased %+v", items)
	}
	stamp := MapCommit{Item: items[at], Outcome: MapPart, Part: 1, Nested: []crawl.URL{f.url(t, "/nested.xml")}}
	stamp.Links = []MapLink{{Link: f.link(t, "/stamped"), LastMod: f.at()}}
	pages := slices.Delete(slices.Clone(items), at, at+1)
	text := strings.Repeat("text ", 50)
	content, err := Pack(&crawl.Content{Text: &text})
	if err != nil {
		t.Fatal(err)
	}
	full, twin, alias, hidden := accept(t, pages[0]), accept(t, pages[1]), accept(t, pages[2]), accept(t, pages[3])
	full.Accepted.Content, full.Accepted.Digest, twin.Accepted.Digest = content, "digest", "digest"
	full.Accepted.Items = []json.RawMessage{json.RawMessage(`{"n":1}`)}
	full.Accepted.Upserts = []Upsert{{Key: pages[0].URL, Facets: []Facet{{"city", "a"}}, Numbers: []Number{{"price", "1"}}}}
	full.Accepted.Visit = &Visit{ETag: "e"}
	patterned := f.link(t, "/p/1")
	patterned.Pattern = "/p/#"
	outside := f.link(t, "/outside")
	outside.Refused = crawl.RefusedOutOfScope
	full.Accepted.Links = []crawl.Link{patterned, outside}
	alias.Accepted.Final, hidden.NoIndex = full.Accepted.Final, true
	f.exchange(t, sl, Exchange{Maps: []MapCommit{stamp}, Commits: []Commit{
		full, twin, alias, hidden,
		{Item: pages[4], Failed: &crawl.Failure{SourceURL: pages[4].URL, ErrorType: "http_404"}},
		{Item: pages[5], Skipped: crawl.SkipRobots},
		{Item: pages[6], Retry: 10 * time.Minute},
		{Item: pages[7], Redirect: &Redirect{URL: "http://other.test/", Hops: 1}},
	}})
	f.exchange(t, sl, Exchange{Retire: true})
	return n.Job, sl, pages[8:]
}

func (f *fixture) url(t *testing.T, path string) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL("http://site.test" + path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (f *fixture) link(t *testing.T, path string) crawl.Link {
	t.Helper()
	u := f.url(t, path)
	return crawl.Link{URL: u, Key: u.Key()}
}

// Whatever a job was and however it ended, when its retention is over nothing is left of it but its
// tombstone, which has an end; and after that nothing. No key of the tenant is without an owner.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	ends := map[string]func(t *testing.T, f *fixture, job crawl.JobRef, sl *Slice, held []crawl.Item){
		"cancelled": func(t *testing.T, f *fixture, job crawl.JobRef, _ *Slice, _ []crawl.Item) { f.stop(t, job) },
		"paused, cancelled": func(t *testing.T, f *fixture, job crawl.JobRef, _ *Slice, _ []crawl.Item) {
			(&placed{fixture: f, ref: job}).pause(t)
			f.stop(t, job)
		},
		"paused for too long": func(t *testing.T, f *fixture, job crawl.JobRef, _ *Slice, _ []crawl.Item) {
			(&placed{fixture: f, ref: job}).pause(t)
			f.pass(crawl.MaxPause)
			f.heal(t)
		},
		"resumed, at the gate, cancelled": func(t *testing.T, f *fixture, job crawl.JobRef, _ *Slice, _ []crawl.Item) {
			p := &placed{fixture: f, ref: job}
			p.pause(t)
			p.crowd(t)
			p.resume(t, crawl.Queued)
			f.stop(t, job)
			f.stop(t, p.other)
		},
		"time limit": func(t *testing.T, f *fixture, _ crawl.JobRef, _ *Slice, _ []crawl.Item) {
			f.pass(time.Hour)
			f.heal(t)
		},
		"byte limit": func(t *testing.T, f *fixture, _ crawl.JobRef, sl *Slice, held []crawl.Item) {
			c := accept(t, held[0])
			c.Accepted.Page.Bytes = 5000
			f.exchange(t, sl, Exchange{Commits: []Commit{c}})
		},
		"a lost worker, then cancelled": func(t *testing.T, f *fixture, job crawl.JobRef, _ *Slice, _ []crawl.Item) {
			f.pass(LeaseTime)
			f.heal(t)
			f.exchange(t, f.begin(t, job), Exchange{Lease: 3})
			f.stop(t, job)
		},
		"worked off": func(t *testing.T, f *fixture, job crawl.JobRef, sl *Slice, _ []crawl.Item) {
			if _, err := f.End(t.Context(), sl, NoRest); err != nil {
				t.Fatal(err)
			}
			f.pass(25 * time.Minute) // a slice may have been asked to rest
			f.crawlOff(t, job)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				if err := f.rdb.SAdd(t.Context(), tenantsKey, f.tenant).Err(); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"key", ""} {
					job, sl, held := f.rich(t, key)
					end(t, f, job, sl, held)
					f.pass(Grace)
					f.heal(t)
					if j := f.read(t, job); !j.State.Terminal() {
						t.Fatalf("it did not end: %+v", j)
					}
				}
				f.pass(200 * 24 * time.Hour)
				f.heal(t)
				if _, err := f.ClaimDeliveries(t.Context(), Claim{Tenant: f.tenant, Most: 10, PerReceiver: 10}); err != nil {
					t.Fatal(err)
				}
				f.owned(t)
			})
		})
	}
}

// owned checks that each key is one of the tenant's, or ends by itself and is a tombstone or what
// leads to one; and that without these nothing is known of the jobs.
func (f *fixture) owned(t *testing.T) {
	t.Helper()
	tombstones := 0
	for name, ttl := range f.left(t) {
		switch {
		case ofTenant.MatchString(name):
			continue
		case !fleeting.MatchString(name):
			t.Errorf("%s has no owner", name)
		case ttl <= 0 || ttl > 131*24*time.Hour:
			t.Errorf("%s lives for %v", name, ttl)
		case strings.HasPrefix(name, ":j:"):
			tombstones++
			h := f.rdb.HGetAll(t.Context(), rootKey(f.tenant)+name).Val()
			for field := range h {
				if field != "gone" && field != "digest" {
					t.Errorf("tombstone %s has %s", name, field)
				}
			}
		}
		// As if its time were over: it elapses by the clock of Redis, and the test has its own.
		if err := f.rdb.Del(t.Context(), rootKey(f.tenant)+name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if tombstones < 2 {
		t.Errorf("%d tombstones", tombstones)
	}
	if s := f.heal(t); s.Jobs != 0 || len(s.Outbox) != 0 {
		t.Errorf("something is left to heal: %+v", s)
	}
	for name := range f.left(t) {
		if !ofTenant.MatchString(name) {
			t.Errorf("%s has come back", name)
		}
	}
	stats, err := f.stats(t.Context(), []string{f.tenant}, statsJobs, statsTotal)
	if err != nil || stats.Due != 0 || stats.WebhookJobs != 0 || stats.Jobs[crawl.Paused] != 0 {
		t.Errorf("counted %+v, %v", stats, err)
	}
}

// stop cancels a job and has its grace pass.
func (f *fixture) stop(t *testing.T, job crawl.JobRef) {
	t.Helper()
	if _, err := f.Cancel(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	f.pass(Grace)
	f.heal(t)
}

// crawlOff works a job off to its end, sitemaps too, whenever something of it is due.
func (f *fixture) crawlOff(t *testing.T, job crawl.JobRef) {
	t.Helper()
	for range 5 {
		sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: job})
		if err != nil {
			t.Fatal(err)
		}
		for sl != nil {
			out := f.exchange(t, sl, Exchange{Lease: 10})
			if len(out.Items) == 0 {
				break
			}
			var x Exchange
			for _, it := range out.Items {
				if it.Kind == crawl.ItemSitemap {
					x.Maps = append(x.Maps, MapCommit{Item: it, Outcome: MapNone})
				} else {
					x.Commits = append(x.Commits, accept(t, it))
				}
			}
			f.exchange(t, sl, x)
		}
		if sl != nil {
			if _, err := f.End(t.Context(), sl, NoRest); err != nil {
				t.Fatal(err)
			}
		}
		if f.read(t, job).State.Terminal() {
			return
		}
		f.pass(12 * time.Minute)
	}
}
