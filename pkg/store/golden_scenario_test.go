package store

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// goldenTenant stands for the tenant in golden files; who loads one puts a name of its own, as long
// as this, in its place. goldenHost, whose keys are kept, too, is named after it; site.test is not.
const (
	goldenTenant = "tgoldenofversions"
	goldenHost   = "http://" + goldenTenant + ".test/"
)

// goldenKey is the digest of the tenant's API key in golden files.
var goldenKey = sha256.Sum256([]byte("trawl golden files"))

// scene is what golden files are made of: every kind of job in the midst of its life, written by
// the store as it is.
type scene struct {
	*fixture
	jobs    map[string]NewJob
	running int64 // how many jobs the service lets run
}

// goldenSteps make the jobs, each of which has its own kinds of keys. A step once written does not
// change: what a later version can do more is a step of its own, behind them.
var goldenSteps = []func(t *testing.T, s *scene){
	goldenTenantKept, goldenFirstCrawl, goldenSecondCrawl, goldenMiddle, goldenDeferred, goldenCancelled,
	goldenByteLimit, goldenTombstone, goldenCancelling, goldenRefusedRing, goldenRobots,
}

// newScene makes them in a Redis of their own.
func newScene(t *testing.T, steps ...func(*testing.T, *scene)) (*crawltest.Redis, *scene) {
	t.Helper()
	r := crawltest.Mini(t)
	s := &scene{fixture: newFixture(t, r), jobs: map[string]NewJob{}, running: 4}
	s.tenant = goldenTenant
	for _, step := range steps {
		step(t, s)
	}
	goldenWaiting(t, s) // the last: it stands in line behind those that run
	return r, s
}

// submit stores a job under a name, with that as its Idempotency-Key.
func (s *scene) submit(t *testing.T, name string, n NewJob) NewJob {
	t.Helper()
	n.Job = crawl.JobRef{Tenant: s.tenant, ID: crawl.NewJobID(s.tenant, "golden "+name)}
	n.IdempotencyKey, n.Tags = "golden "+name, []string{"golden", name}
	n.Spec = json.RawMessage(fmt.Sprintf(`{"urls":["http://site.test/"],"tags":["golden",%q]}`, name))
	n.Quota = crawl.Quota{MaxRunning: s.running, MaxQueued: 50, SubmissionsPerSecond: 100}
	n.Plan.Retention = 30 * 24 * time.Hour
	n.Plan.Scope, n.Plan.Sources = "any", []string{"*"}
	s.jobs[name] = n
	s.create(t, n)
	return n
}

// hooked is a webhook for all events.
func hooked() *crawl.Webhook {
	return &crawl.Webhook{
		URL: "http://hook.test/in", Events: crawl.EventTypes, Secret: "whsec_bm8gc2VjcmV0IGF0IGFsbCwgYSB0ZXN0IGhhcyBpdA==",
	}
}

func goldenURL(t *testing.T, s string) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// goldenPage is an accepted page with all that a record can have.
func (s *scene) goldenPage(t *testing.T, it crawl.Item) Commit {
	t.Helper()
	c := accept(t, it)
	p := &c.Accepted.Page
	p.Title, p.FetchedAt, p.DurationMS, p.Bytes = "A <page> & more", s.at(), 123, 4567
	p.ContentType, p.Charset, p.CharsetFrom, p.Language = "text/html", "windows-1252", "meta", "en"
	p.Canonical, p.LinkCount, p.Attempts, p.DecodingErrors = it.URL, 3, it.Attempt+1, true
	p.Fields = json.RawMessage(`{"z":"last first","a":[1.50,null]}`)
	p.Notes = []crawl.Note{{About: "fields.a", What: crawl.NoteUnparsed, Count: 2}}
	return c
}

// goldenTenantKept is a tenant with a quota of its own, a key that lasts, one that ends, and one
// that was revoked.
func goldenTenantKept(t *testing.T, s *scene) {
	_, err := s.CreateTenant(t.Context(), crawl.Tenant{
		Name: s.tenant, Sources: []string{"site.test", "*.example.com"}, Quota: crawl.Quota{MaxPages: 1000, PagesPerDay: 100_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetQuota(t.Context(), s.tenant, crawl.Quota{PagesPerDay: 100_000, MaxRunning: 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddKey(t.Context(), NewKey{Tenant: s.tenant, Digest: goldenKey, Label: "the one in use"}); err != nil {
		t.Fatal(err)
	}
	s.add(t, s.tenant, "ends", 90*24*time.Hour)
	_, gone := s.add(t, s.tenant, "revoked", 0)
	if err := s.RevokeKey(t.Context(), s.tenant, gone.ID); err != nil {
		t.Fatal(err)
	}
}

// collected is a page that gives one item of a collection.
func (s *scene) collected(t *testing.T, it crawl.Item, version byte, city, salary string) Commit {
	t.Helper()
	c := s.goldenPage(t, it)
	c.Accepted.Page.Fields = json.RawMessage(fmt.Sprintf(`{"k":%q,"city":%q,"salary":%s}`, it.URL, city, salary))
	c.Accepted.Upserts = []Upsert{{
		Key: "key " + it.URL, Fingerprint: [16]byte{version},
		Facets:  []Facet{{"city", city}, {"skills", "go"}, {"skills", "lua"}},
		Numbers: []Number{{"salary", json.Number(salary)}},
	}}
	c.Accepted.Visit = &Visit{
		ETag: `"e"`, LastModified: "Tue, 14 Nov 2023 22:13:20 GMT", Under: "rules", Title: "A page",
		Links: []VisitedLink{{URL: "http://site.test/next"}, {URL: "http://site.test/ad", NoFollow: true}},
	}
	return c
}

func (s *scene) collecting(t *testing.T, n int) NewJob {
	t.Helper()
	j := s.job(t, "", n)
	def := modelCollection
	j.Plan.Collection, j.Plan.Series, j.Plan.Concurrency = &def, "series", 16
	return j
}

// goldenFirstCrawl is a job that ended with errors, whose events were delivered, and which filled a
// collection.
func goldenFirstCrawl(t *testing.T, s *scene) {
	j := s.collecting(t, 5)
	j.Plan.Webhook = hooked()
	j = s.submit(t, "ended", j)
	sl := s.begin(t, j.Job)
	items := s.exchange(t, sl, Exchange{Lease: 5}).Items
	s.deliver(t, OutcomeDelivered)
	var x Exchange
	for i, it := range items[:4] {
		x.Commits = append(x.Commits, s.collected(t, it, 1, []string{"Bern", "Genève", "Bern", "Zürich"}[i], fmt.Sprintf("%d.25", 1000*i-1500)))
	}
	x.Commits = append(x.Commits, Commit{Item: items[4], Failed: &crawl.Failure{
		SourceURL: items[4].URL, URL: items[4].URL, ErrorType: crawl.HTTPCode(404), Status: 404, At: s.at(), Attempts: 1,
		Message: "The site has no such page.", Headers: map[string]string{"Server": "x"},
	}, Why: "The site has no such page."})
	s.exchange(t, sl, x)
	if _, err := s.End(t.Context(), sl, NoRest); err != nil {
		t.Fatal(err)
	}
	s.deliver(t, OutcomeDelivered)
	s.pass(time.Minute)
}

// deliver settles all events that are due.
func (s *scene) deliver(t *testing.T, o Outcome) {
	t.Helper()
	c, err := s.ClaimDeliveries(t.Context(), Claim{Tenant: s.tenant, Most: 10, PerReceiver: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Deliveries {
		r := Result{Outcome: o, Status: 204}
		if o == OutcomeRetry {
			r = Result{Outcome: o, Status: 500, Error: "The receiver answered 500.", After: time.Hour}
		}
		if _, err := s.SettleDelivery(t.Context(), &c.Deliveries[i], r); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenSecondCrawl is the complete re-crawl of it: one item is as it was, one not modified, one
// changed, and one was not seen again.
func goldenSecondCrawl(t *testing.T, s *scene) {
	j := s.submit(t, "recrawl", s.collecting(t, 3))
	sl := s.begin(t, j.Job)
	items := s.exchange(t, sl, Exchange{Lease: 3}).Items
	unchanged := s.goldenPage(t, items[1])
	unchanged.Accepted.NotModified = true
	s.exchange(t, sl, Exchange{Commits: []Commit{
		s.collected(t, items[0], 1, "Bern", "-1500.25"), unchanged, s.collected(t, items[2], 2, "Basel", "12.5"),
	}})
	if _, err := s.End(t.Context(), sl, NoRest); err != nil {
		t.Fatal(err)
	}
	s.pass(time.Minute)
}

// middleLinks are the links of the seed of goldenMiddle.
func middleLinks(t *testing.T) (links []crawl.Link) {
	t.Helper()
	for i := range 12 {
		u := goldenURL(t, fmt.Sprintf("http://site.test/p%d", i+1))
		links = append(links, crawl.Link{URL: u, Key: u.Key()})
	}
	links[11].Pattern = "site.test/p*"
	for _, r := range []crawl.Reason{crawl.RefusedOutOfScope, crawl.RefusedExcluded, crawl.RefusedNoFollow} {
		u := goldenURL(t, "http://site.test/refused/"+string(r))
		links = append(links, crawl.Link{URL: u, Key: u.Key(), Refused: r})
	}
	return links
}

// goldenMiddle is a site crawl in the midst of everything, with a slice whose worker is gone.
func goldenMiddle(t *testing.T, s *scene) {
	j := s.job(t, "", 1)
	def := modelCollection
	def.Name = "pages"
	j.Plan.Site, j.Plan.Sitemap, j.Plan.MaxPages, j.Plan.MaxDepth, j.Plan.Concurrency = true, crawl.SitemapInclude, 100, 3, 32
	j.Plan.Collection, j.Plan.Series, j.Plan.TimeLimit = &def, "other", 24*time.Hour
	j.Plan.Webhook = hooked()
	j.Plan.Items = &crawl.Items{Selector: "li"}
	j.Plan.MaxBytes, j.Plan.Formats = 1<<20, []string{"text", "links", "metadata"}
	j = s.submit(t, "middle", j)
	sl := s.begin(t, j.Job)
	s.deliver(t, OutcomeRetry) // job.running waits for its next try
	first := s.exchange(t, sl, Exchange{Lease: 2})
	var seed, rootMap crawl.Item
	for _, it := range first.Items {
		if it.Kind == crawl.ItemSitemap {
			rootMap = it
		} else {
			seed = it
		}
	}
	s.middleMaps(t, sl, rootMap)
	c := s.goldenPage(t, seed)
	c.Accepted.Links, c.Accepted.BadLinks = middleLinks(t), map[crawl.Reason]int{crawl.RefusedInvalid: 2}
	c.Accepted.ListPage = true
	s.exchange(t, sl, Exchange{Commits: []Commit{c}})
	var leased []crawl.Item
	for range 3 { // a lease has one sitemap at most, and that first
		leased = append(leased, s.exchange(t, sl, Exchange{Lease: 1, Holding: len(leased)}).Items...)
	}
	// Two pages of a sitemap and twelve of the seed.
	leased = append(leased, s.exchange(t, sl, Exchange{Lease: 20, Holding: len(leased)}).Items...)
	s.middlePages(t, sl, leased)
	s.exchange(t, sl, Exchange{Reserves: []HostReserve{{Host: goldenURL(t, goldenHost).PolitenessHost(), First: 1, N: 2, Concurrency: 2}}})
	s.pass(time.Second)
}

// middleMaps reads the first sitemap, which names pages and others.
func (s *scene) middleMaps(t *testing.T, sl *Slice, it crawl.Item) {
	t.Helper()
	m := MapCommit{Item: it, Outcome: MapRead, BadLinks: map[crawl.Reason]int{crawl.RefusedInvalid: 1}}
	for i := range 3 {
		m.Nested = append(m.Nested, mapURL(t, i+1))
	}
	for _, name := range []string{"s1", "s2"} {
		u := goldenURL(t, "http://site.test/"+name)
		m.Links = append(m.Links, MapLink{Link: crawl.Link{URL: u, Key: u.Key()}, LastMod: s.at().Add(-time.Hour)})
	}
	s.exchange(t, sl, Exchange{Maps: []MapCommit{m}})
}

// middlePages settles most of what is leased; the rest stays the slice's.
func (s *scene) middlePages(t *testing.T, sl *Slice, leased []crawl.Item) {
	t.Helper()
	pages := map[string]crawl.Item{}
	var maps []crawl.Item
	for _, it := range leased {
		if it.Kind == crawl.ItemSitemap {
			maps = append(maps, it)
		} else {
			pages[strings.TrimPrefix(it.URL, "http://site.test/")] = it
		}
	}
	if len(pages) != 14 || len(maps) != 3 {
		t.Fatalf("leased %d pages and %d sitemaps", len(pages), len(maps))
	}
	small := s.goldenPage(t, pages["p1"])
	small.Accepted.Content = pack(t, textOf("short"))
	small.Accepted.Items = []json.RawMessage{[]byte(`{"k":"one"}`), []byte(`{"k":"two","city":"Bern"}`)}
	small.Accepted.Upserts = []Upsert{
		{Item: 1, Key: "one", Fingerprint: [16]byte{1}},
		{Item: 2, Key: "two", Fingerprint: [16]byte{1}, Facets: []Facet{{"city", "Bern"}}, Numbers: []Number{{"salary", "1e3"}}},
	}
	u := goldenURL(t, "http://site.test/deep")
	small.Accepted.Links = []crawl.Link{{URL: u, Key: u.Key()}}
	large := s.goldenPage(t, pages["p2"])
	large.Accepted.Digest = "bytes of p2"
	text, html, empty := strings.Repeat("long text, ", 500), "<b>\u2028&</b>", ""
	large.Accepted.Content = pack(t, &crawl.Content{
		Text: &text, HTML: &html, Markdown: &empty, Links: []crawl.PageLink{{URL: "http://site.test/x", Text: "x", Rel: "next", InScope: true}},
		Metadata: &crawl.Metadata{Title: "Large", OpenGraph: map[string][]string{"type": {"article"}}},
	})
	same := s.goldenPage(t, pages["p3"])
	same.Accepted.Digest = "bytes of p2"
	alias := s.goldenPage(t, pages["p4"])
	alias.Accepted.Final = small.Accepted.Final
	noindex := s.goldenPage(t, pages["p8"])
	noindex.NoIndex = true
	s.exchange(t, sl, Exchange{
		Commits: []Commit{
			small, large, same, alias,
			{Item: pages["p5"], Failed: &crawl.Failure{
				SourceURL: pages["p5"].URL, URL: pages["p5"].URL + "?moved", ErrorType: crawl.CodeTimeout, Attempts: 3, Depth: 1,
				Message: "The site did not answer in time.", At: s.at(),
			}},
			{Item: pages["p6"], Skipped: crawl.SkipRobots, SkippedTo: "Disallow: /p6"},
			{Item: pages["p7"], Skipped: crawl.SkipRedirectOutOfScope, SkippedTo: "http://elsewhere.test/"},
			noindex,
			{Item: pages["p9"], Retry: time.Minute},
			{Item: pages["p10"], Redirect: &Redirect{URL: "http://other.test/p10", Hops: 1}},
			s.goldenPage(t, pages["s1"]),
		},
		Maps: []MapCommit{
			{Item: maps[0], Outcome: MapPart, Part: 1},
			{Item: maps[1], Outcome: MapRetry, Retry: time.Minute},
		},
		Returns: []Return{{Item: pages["p11"], Delay: 2 * time.Minute, For: "robots"}, {Item: pages["s2"]}},
	})
}

// goldenDeferred is a job that only waits, for its host.
func goldenDeferred(t *testing.T, s *scene) {
	j := s.job(t, "", 3)
	j.Plan.TimeLimit = 48 * time.Hour
	j = s.submit(t, "deferred", j)
	sl := s.begin(t, j.Job)
	var x Exchange
	for _, it := range s.exchange(t, sl, Exchange{Lease: 3}).Items {
		x.Returns = append(x.Returns, Return{Item: it, Delay: 10 * time.Minute})
	}
	s.exchange(t, sl, x)
	if _, err := s.End(t.Context(), sl, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// goldenCancelled is a job that was cancelled while it had URLs in every place.
func goldenCancelled(t *testing.T, s *scene) {
	j := s.submit(t, "cancelled", s.job(t, "", 6))
	sl := s.begin(t, j.Job)
	items := s.exchange(t, sl, Exchange{Lease: 3}).Items
	s.exchange(t, sl, Exchange{
		Commits: []Commit{s.goldenPage(t, items[0])}, Returns: []Return{{Item: items[1], Delay: time.Hour}},
	})
	s.cancel(t, j)
	s.pass(Grace)
	s.cancel(t, j) // what is in flight is revoked
}

func (s *scene) cancel(t *testing.T, j NewJob) {
	t.Helper()
	if _, err := s.Cancel(t.Context(), j.Job); err != nil {
		t.Fatal(err)
	}
}

// goldenByteLimit is a job that was cut short by the bytes that it may keep.
func goldenByteLimit(t *testing.T, s *scene) {
	j := s.job(t, "", 3)
	j.Plan.MaxKeptBytes = 30
	j = s.submit(t, "byte_limit", j)
	sl := s.begin(t, j.Job)
	items := s.exchange(t, sl, Exchange{Lease: 2}).Items
	kept, left := s.goldenPage(t, items[0]), s.goldenPage(t, items[1])
	kept.Accepted.Content, left.Accepted.Content = pack(t, textOf("few")), pack(t, textOf(strings.Repeat("many ", 50)))
	s.exchange(t, sl, Exchange{Commits: []Commit{kept, left}})
}

// goldenTombstone is a job that was removed while nobody had been told of its end.
func goldenTombstone(t *testing.T, s *scene) {
	j := s.job(t, "", 1)
	j.Plan.Webhook = hooked()
	j = s.submit(t, "gone", j)
	s.finish(t, j.Job)
	if err := s.Delete(t.Context(), j.Job); err != nil {
		t.Fatal(err)
	}
}

// goldenCancelling is a job whose requests in flight have the grace of a cancel.
func goldenCancelling(t *testing.T, s *scene) {
	j := s.submit(t, "cancelling", s.job(t, "", 3))
	sl := s.begin(t, j.Job)
	s.exchange(t, sl, Exchange{Lease: 1})
	s.cancel(t, j)
}

// goldenRefusedRing is a job that the queue did not take.
func goldenRefusedRing(t *testing.T, s *scene) {
	j := s.submit(t, "dispatch", s.job(t, "", 2))
	if err := s.RingFailed(t.Context(), j.Job, "The queue does not answer."); err != nil {
		t.Fatal(err)
	}
}

// goldenWaiting is a job that waits for its turn.
func goldenWaiting(t *testing.T, s *scene) { s.submit(t, "waiting", s.job(t, "", 2)) }

// goldenRobots is what is known of a host.
func goldenRobots(t *testing.T, s *scene) {
	u := goldenURL(t, goldenHost)
	r, err := s.ClaimRobots(t.Context(), u, "trawl")
	if err == nil {
		_, err = s.LearnRobots(t.Context(), u, "trawl", r.Claim, RobotsFetch{Rules: "User-agent: *\nDisallow: /no\n"})
	}
	if err != nil {
		t.Fatal(err)
	}
}
