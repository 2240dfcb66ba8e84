package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// The model of a collection is its items alone: what is counted of them, what is missing and what
// a page of them holds is worked out anew from all of them after every step.
type colModel struct {
	st      *Store
	tenant  string
	now     int64
	most    int64
	defined bool
	last    int64 // number of the last item
	updated int64
	items   map[string]*colItem
	visits  map[string][]string // by page: keys of the items it gave
	since   map[string]int64    // by series
	known   map[string]bool     // series that something was committed of
	jobs    []*colJob
}

type colItem struct {
	n                      int64
	page, series, job      string
	source                 string // of the page when it was created or updated last
	fields                 string
	version                byte
	created, updated, seen int64
	facets                 []Facet
	numbers                []Number
}

type colJob struct {
	ref                   crawl.JobRef
	series                string
	itemised              bool
	created               int64
	sl                    *Slice
	left, kills           int
	report                crawl.Report
	unsure, failed, ended bool
	changes               []crawl.Change
	sent                  []Commit
}

func newColModel(t *rapid.T, r *crawltest.Redis, tenant string) *colModel {
	m := &colModel{tenant: tenant, now: 1_700_000_000_000}
	m.most = rapid.SampledFrom([]int64{0, 0, 2, 4}).Draw(t, "max items")
	m.st = New(r.Client, Options{Now: func() int64 { return m.now }})
	m.reset()
	return m
}

func (m *colModel) reset() {
	m.defined, m.last = false, 0
	m.items, m.visits, m.since = map[string]*colItem{}, map[string][]string{}, map[string]int64{}
	m.known = map[string]bool{}
}

func (m *colModel) define() {
	if !m.defined {
		m.reset()
		m.defined, m.updated = true, m.now
	}
}

var modelCollection = crawl.Collection{
	Name: "jobs", Key: "k", Facets: []string{"skills", "city"}, Numbers: []string{"salary"},
}

func (m *colModel) submit(ctx context.Context, t *rapid.T) {
	if len(m.jobs) > 0 && rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		return
	}
	j := &colJob{
		series: rapid.SampledFrom([]string{"one", "one", "two"}).Draw(t, "series"), created: m.now,
		itemised: rapid.Bool().Draw(t, "itemised"), left: rapid.IntRange(1, 4).Draw(t, "pages"),
	}
	n := newJob(m.tenant, "")
	n.Quota.MaxRunning, n.Plan.Retention = 1000, 100_000*time.Hour
	def := modelCollection
	if rapid.Bool().Draw(t, "other order") {
		def.Facets = []string{"city", "skills"}
	}
	n.Plan.Collection, n.Plan.Series, n.Plan.MaxItems = &def, j.series, m.most
	if j.itemised {
		n.Plan.Items = &crawl.Items{Selector: "li"}
	}
	first := rapid.IntRange(0, 2).Draw(t, "first")
	for i := range j.left {
		n.Inputs = append(n.Inputs, crawl.Input{URL: url(t, first+i)})
	}
	j.ref = n.Job
	if _, err := m.st.Create(ctx, n); err != nil {
		t.Fatal(err)
	}
	m.define()
	m.jobs = append(m.jobs, j)
}

// pick answers a job that has not ended, with a slice.
func (m *colModel) pick(ctx context.Context, t *rapid.T) *colJob {
	open := slices.DeleteFunc(slices.Clone(m.jobs), func(j *colJob) bool { return j.ended })
	if len(open) == 0 {
		t.Skip("no job")
	}
	j := rapid.SampledFrom(open).Draw(t, "job")
	if j.sl == nil {
		sl, _, err := m.st.Begin(ctx, crawl.Ring{JobRef: j.ref, N: 100})
		if err != nil || sl == nil {
			t.Fatalf("slice %v, %v", sl, err)
		}
		j.sl = sl
	}
	return j
}

var modelNumbers = []json.Number{
	"0", "-1.5", "1e3", "0.0000005", "-0.0000005", "999999999999.999999", "-1000000000000", "1e12", "12.3456785", "1e13",
	"1e-999999999", "NaN", "",
}

func drawUpsert(t *rapid.T, key string, item int) Upsert {
	u := Upsert{Item: item, Key: key, Fingerprint: [16]byte{rapid.ByteRange(0, 2).Draw(t, "version")}}
	for _, name := range []string{"skills", "city", "unknown"} {
		values := rapid.SampledFrom([]string{"go", "gö", "", "上海", "a,b", `"x"`, "go "})
		for _, v := range rapid.SliceOfN(values, 0, 3).Draw(t, name) {
			u.Facets = append(u.Facets, Facet{name, v})
		}
	}
	if rapid.Bool().Draw(t, "number") {
		u.Numbers = []Number{{"salary", rapid.SampledFrom(modelNumbers).Draw(t, "salary")}}
	}
	return u
}

// draw makes up what a worker finds at a page.
func (m *colModel) draw(ctx context.Context, t *rapid.T, j *colJob, it crawl.Item) Commit {
	u, _ := crawl.ParseURL(it.URL)
	c := Commit{Item: it, Accepted: &Accepted{
		Page: crawl.Page{SourceURL: it.URL, URL: it.URL, Status: 200, Bytes: 10}, Final: u.Key(),
	}}
	v, err := m.st.Visited(ctx, j.sl, u)
	if _, want := m.visits[it.URL]; err != nil || (v != nil) != want || v != nil && v.ETag != it.URL {
		t.Fatalf("visit %+v, %v, want one: %v", v, err, want)
	}
	switch k := rapid.IntRange(0, 15).Draw(t, "outcome"); {
	case k == 0:
		return Commit{Item: it, Failed: &crawl.Failure{ErrorType: crawl.HTTPCode(404)}}
	case k == 1:
		return Commit{Item: it, Failed: &crawl.Failure{ErrorType: crawl.CodeTimeout}}
	case k == 2:
		return Commit{Item: it, Skipped: "robots_unreachable"}
	case k == 3:
		return Commit{Item: it, Retry: time.Millisecond}
	case k == 4 || k < 10 && v != nil: // and once without a visit: it was dropped meanwhile
		c.Accepted.NotModified, c.Accepted.Page.Status = true, 304
		return c
	}
	keys := rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 3, rapid.ID[int]).Draw(t, "keys")
	if !j.itemised {
		keys = keys[:min(1, len(keys))]
		c.Accepted.ListPage = rapid.Bool().Draw(t, "list page") && len(keys) == 0
	}
	for i, k := range keys {
		up := drawUpsert(t, fmt.Sprintf("k%d", k), 0)
		if j.itemised {
			up.Item = i + 1
			c.Accepted.Items = append(c.Accepted.Items, fieldsOf(up))
		} else {
			c.Accepted.Page.Fields = fieldsOf(up)
		}
		c.Accepted.Upserts = append(c.Accepted.Upserts, up)
	}
	if j.itemised && rapid.Bool().Draw(t, "no key") {
		c.Accepted.Items = append(c.Accepted.Items, json.RawMessage(`{"k":null}`))
	}
	if rapid.Bool().Draw(t, "visit") {
		c.Accepted.Visit = &Visit{ETag: it.URL, Under: "x", Links: []VisitedLink{{URL: it.URL, NoFollow: true}}}
	}
	return c
}

func fieldsOf(u Upsert) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"k":%q,"v":%d}`, u.Key, u.Fingerprint[0]))
}

func (m *colModel) commit(ctx context.Context, t *rapid.T) {
	j := m.pick(ctx, t)
	m.now += 10 // what is retried is due
	out, err := m.st.Exchange(ctx, j.sl, Exchange{Lease: 1, Holding: 0})
	if err != nil || len(out.Items) == 0 {
		t.Fatalf("%+v, %v, with %d pages left", out, err, j.left)
	}
	c := m.draw(ctx, t, j, out.Items[0])
	if rapid.IntRange(0, 7).Draw(t, "stopped") == 0 && j.kills < 2 {
		m.kill(ctx, t) // with the page in its hands
		return
	}
	m.now += rapid.Int64Range(-3, 3).Draw(t, "ms")
	res, err := m.st.Exchange(ctx, j.sl, Exchange{Commits: []Commit{c}})
	if err != nil || res.Committed[0].Verdict != Done {
		t.Fatalf("%+v, %v", res, err)
	}
	j.sent = append(j.sent, c)
	m.apply(j, &c)
}

// apply changes the model as the contract says that a commit does.
func (m *colModel) apply(j *colJob, c *Commit) {
	if c.Retry > 0 {
		return
	}
	j.left--
	switch a := c.Accepted; {
	case c.Failed != nil:
		j.failed = j.failed || c.Failed.ErrorType != crawl.HTTPCode(404)
	case c.Skipped != "":
		j.unsure = true
	case a.NotModified:
		j.changes = append(j.changes, m.notModified(j, c.Item.URL))
	default:
		m.collect(j, c)
	}
	if j.left == 0 {
		j.ended = true
		if !j.unsure && !j.failed {
			m.complete(j)
		}
	}
}

func (m *colModel) see(j *colJob, it *colItem) {
	it.series, it.seen = j.series, max(m.now, m.since[j.series])
}

func (m *colModel) notModified(j *colJob, page string) crawl.Change {
	m.known[j.series] = m.defined
	keys, ok := m.visits[page]
	if !ok {
		j.unsure = true
		return ""
	}
	for _, key := range keys {
		m.see(j, m.items[key])
		j.report.Unchanged++
	}
	if len(keys) == 0 {
		return "" // it gave nothing
	}
	return crawl.Unchanged
}

func (m *colModel) collect(j *colJob, c *Commit) {
	a := c.Accepted
	if a.ListPage {
		j.report.ListPages++
	}
	records := 1
	if j.itemised {
		records = len(a.Items)
	} else if a.ListPage {
		records = 0
	}
	j.report.NotCollected += int64(records - len(a.Upserts))
	if len(a.Upserts) > 0 {
		m.define()
	}
	m.known[j.series] = m.defined
	changes, kept, full := make([]crawl.Change, 1+len(a.Items)), []string{}, false
	for _, u := range a.Upserts {
		changes[u.Item] = m.upsert(j, c.Item.URL, u)
		if changes[u.Item] == "" {
			full = true
			j.report.NotCollected++
		} else {
			kept = append(kept, u.Key)
		}
	}
	j.changes = append(j.changes, changes...)
	delete(m.visits, c.Item.URL)
	if a.Visit != nil && !full && m.defined {
		m.visits[c.Item.URL] = kept
	}
}

func (m *colModel) upsert(j *colJob, page string, u Upsert) crawl.Change {
	it, known := m.items[u.Key]
	change := crawl.Unchanged
	switch {
	case !known && m.most > 0 && int64(len(m.items)) >= m.most:
		return ""
	case !known:
		change = crawl.Created
		m.last++
		it = &colItem{n: m.last, created: m.now, page: page}
		m.items[u.Key] = it
		j.report.Created++
	case it.version != u.Fingerprint[0]:
		change = crawl.Updated
		j.report.Updated++
	default:
		j.report.Unchanged++
	}
	if change != crawl.Unchanged {
		it.version, it.updated, it.job, it.fields = u.Fingerprint[0], m.now, j.ref.ID, string(fieldsOf(u))
		it.source = page
		it.facets, it.numbers = u.Facets, u.Numbers
		m.updated = m.now
	}
	if it.page != page {
		delete(m.visits, it.page)
		it.page = page
	}
	m.see(j, it)
	return change
}

func (m *colModel) complete(j *colJob) {
	before := m.missing()
	if m.known[j.series] {
		m.since[j.series] = max(m.since[j.series], j.created)
	}
	j.report.Missing = m.missing() - before
}

func (m *colModel) isMissing(it *colItem) bool { return it.seen < m.since[it.series] }

func (m *colModel) missing() (n int64) {
	for _, it := range m.items {
		if m.isMissing(it) {
			n++
		}
	}
	return n
}

// again sends a commit of a job once more.
func (m *colModel) again(ctx context.Context, t *rapid.T) {
	j := m.pick(ctx, t)
	if len(j.sent) == 0 {
		t.Skip("nothing sent")
	}
	c := rapid.SampledFrom(j.sent).Draw(t, "sent")
	if _, err := m.st.Exchange(ctx, j.sl, Exchange{Commits: []Commit{c}}); err != nil {
		t.Fatal(err)
	}
}

// kill loses every worker: what they held comes back.
func (m *colModel) kill(ctx context.Context, t *rapid.T) {
	for _, j := range m.jobs {
		if j.kills == 2 && j.sl != nil && !j.ended {
			t.Skip("one more would lose the page")
		}
	}
	m.now += LeaseTime.Milliseconds() + 1
	if _, err := m.st.sweep(ctx, []string{m.tenant}); err != nil {
		t.Fatal(err)
	}
	for _, j := range m.jobs {
		if j.sl != nil {
			j.sl, j.kills = nil, j.kills+1
		}
	}
}

func (m *colModel) deleteItem(ctx context.Context, t *rapid.T) {
	key := fmt.Sprintf("k%d", rapid.IntRange(0, 5).Draw(t, "key"))
	err := m.st.DeleteItem(ctx, m.tenant, "jobs", key)
	it, known := m.items[key]
	if known != (err == nil) || err != nil && crawl.CodeOf(err) != crawl.CodeNotFound {
		t.Fatalf("deleted %s (there: %v): %v", key, known, err)
	}
	if known {
		delete(m.items, key)
		delete(m.visits, it.page)
		m.updated = m.now
	}
}

func (m *colModel) deleteAll(ctx context.Context, t *rapid.T) {
	if rapid.IntRange(0, 5).Draw(t, "seldom") > 0 {
		t.Skip("not now")
	}
	err := m.st.DeleteCollection(ctx, m.tenant, "jobs")
	if m.defined != (err == nil) || err != nil && crawl.CodeOf(err) != crawl.CodeNotFound {
		t.Fatalf("deleted (there: %v): %v", m.defined, err)
	}
	m.reset()
	if left := m.st.rdb.Keys(ctx, rootKey(m.tenant)+":[dc]:*").Val(); len(left) > 0 {
		t.Fatalf("left of it: %q", left)
	}
}

// values answers what of the item is counted of a facet.
func (it *colItem) values(facet string) []string {
	var out []string
	for _, f := range it.facets {
		if f.Name == facet && f.Value != "" {
			out = append(out, f.Value)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// numberOf answers an item's number rounded to millionths; nil without one.
func (it *colItem) numberOf() *big.Rat {
	if len(it.numbers) == 0 {
		return nil
	}
	switch s := string(it.numbers[0].Value); s {
	case "NaN", "", "1e13":
		return nil
	case "1e-999999999":
		return new(big.Rat)
	default:
		r, _ := new(big.Rat).SetString(s)
		out, _ := new(big.Rat).SetString(r.FloatString(6))
		return out
	}
}

func sameNumber(got json.Number, want *big.Rat) bool {
	r, ok := new(big.Rat).SetString(string(got))
	rounded, _ := new(big.Rat).SetString(want.FloatString(6)) // no -0
	return ok && json.Valid([]byte(got)) && r.Cmp(rounded) == 0
}

func (m *colModel) check(ctx context.Context, t *rapid.T) {
	for _, j := range m.jobs {
		got, err := m.st.Job(ctx, j.ref)
		if err != nil || got.Report != j.report || !got.Consistent() || got.State.Terminal() != j.ended {
			t.Fatalf("job (ended: %v) %+v, %v: report, want %+v", j.ended, got, err, j.report)
		}
		p, err := m.st.Records(ctx, j.ref, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var changes []crawl.Change
		for _, r := range p.Records {
			changes = append(changes, r.Change)
		}
		if d := cmp.Diff(j.changes, changes); d != "" {
			t.Fatalf("changes (-want +got):\n%s", d)
		}
	}
	c, err := m.st.Collection(ctx, m.tenant, "jobs")
	if !m.defined {
		if crawl.CodeOf(err) != crawl.CodeNotFound {
			t.Fatalf("%+v, %v, of a collection that is not there", c, err)
		}
		return
	}
	if err != nil || c.Total != int64(len(m.items)) || c.Missing != m.missing() || c.UpdatedAt.UnixMilli() != m.updated {
		t.Fatalf("%+v, %v, want %d of which %d are missing, at %d", c, err, len(m.items), m.missing(), m.updated)
	}
	m.checkCounts(ctx, t)
}

func (m *colModel) checkCounts(ctx context.Context, t *rapid.T) {
	a, err := m.st.Analytics(ctx, m.tenant, "jobs", 1000)
	if err != nil || a.Total != int64(len(m.items)) || a.Missing != m.missing() {
		t.Fatalf("%+v, %v", a, err)
	}
	want, distinct := map[string][]FacetCount{}, map[string]int64{}
	for _, facet := range modelCollection.Facets {
		counts := map[string]int64{}
		for _, it := range m.items {
			for _, v := range it.values(facet) {
				counts[v]++
			}
		}
		list := []FacetCount{}
		for v, n := range counts {
			list = append(list, FacetCount{v, n})
		}
		slices.SortFunc(list, func(a, b FacetCount) int {
			if a.Count != b.Count {
				return int(b.Count - a.Count)
			}
			return strings.Compare(a.Value, b.Value)
		})
		want[facet], distinct[facet] = list, int64(len(list))
	}
	if d := cmp.Diff(want, a.Facets); d != "" {
		t.Fatalf("facets (-want +got):\n%s", d)
	}
	if d := cmp.Diff(distinct, a.Distinct); d != "" {
		t.Fatalf("distinct (-want +got):\n%s", d)
	}
	var n int64
	var sum, least, most *big.Rat
	for _, it := range m.items {
		r := it.numberOf()
		switch {
		case r == nil:
			continue
		case n == 0:
			sum, least, most = new(big.Rat), r, r
		case r.Cmp(least) < 0:
			least = r
		case r.Cmp(most) > 0:
			most = r
		}
		n++
		sum.Add(sum, r)
	}
	got := a.Numbers["salary"]
	if n == 0 {
		if got != (NumberStats{}) {
			t.Fatalf("%+v of no number", got)
		}
		return
	}
	avg := sum.Quo(sum, new(big.Rat).SetInt64(n))
	if got.Count != n || !sameNumber(got.Min, least) || !sameNumber(got.Max, most) || !sameNumber(got.Avg, avg) {
		t.Fatalf("numbers %+v, want %d from %s to %s, %s in the middle", got, n, least.FloatString(6), most.FloatString(6),
			avg.FloatString(6))
	}
}

// read reads items as a caller would, page by page, and compares them with those that fit.
func (m *colModel) read(ctx context.Context, t *rapid.T) {
	if !m.defined {
		t.Skip("no collection")
	}
	q := ItemQuery{Tenant: m.tenant, Collection: "jobs", Limit: rapid.IntRange(1, 4).Draw(t, "limit")}
	for range rapid.IntRange(0, 2).Draw(t, "filters") {
		q.Filters = append(q.Filters, Filter{
			rapid.SampledFrom(modelCollection.Facets).Draw(t, "facet"),
			rapid.SampledFrom([]string{"go", "gö", "上海", "g"}).Draw(t, "value"),
		})
	}
	if rapid.Bool().Draw(t, "choose") {
		missing := rapid.Bool().Draw(t, "missing")
		q.Missing = &missing
	}
	want := []CollectionItem{}
	for key, it := range m.items {
		if q.Missing != nil && *q.Missing != m.isMissing(it) || slices.ContainsFunc(q.Filters, func(f Filter) bool {
			return !slices.Contains(it.values(f.Name), f.Value)
		}) {
			continue
		}
		want = append(want, m.shown(key, it))
	}
	slices.SortFunc(want, func(a, b CollectionItem) int { return int(a.N - b.N) })
	byOffset := rapid.Bool().Draw(t, "by offset")
	got := []CollectionItem{}
	for {
		p, err := m.st.Items(ctx, q)
		if err != nil || len(p.Items) > q.Limit {
			t.Fatalf("%+v, %v", p, err)
		}
		if p.Total != int64(len(want)) && (q.After == 0 || p.Total != -1) {
			t.Fatalf("total %d of %+v, want %d", p.Total, q, len(want))
		}
		got = append(got, p.Items...)
		if p.More != (len(got) < len(want)) && q.After == 0 {
			t.Fatalf("more: %v, with %d of %d", p.More, len(got), len(want))
		}
		if !p.More {
			break
		}
		if byOffset {
			q.Offset += int64(q.Limit)
		} else {
			q.After = p.Next
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("items of %+v (-want +got):\n%s", q, d)
	}
}

func (m *colModel) shown(key string, it *colItem) CollectionItem {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	out := CollectionItem{
		N: it.n, Key: key, SourceURL: it.source, URL: it.source, Fields: json.RawMessage(it.fields), JobID: it.job,
		CreatedAt: at(it.created), UpdatedAt: at(it.updated), SeenAt: at(it.seen),
	}
	if m.isMissing(it) {
		out.MissingSince = at(m.since[it.series])
	}
	return out
}

// TestCollectionInterleavings drives jobs that share a collection against the model: pages in
// any order, keys that several pages give, 304s, killed workers, commits sent twice, deletes.
func TestCollectionInterleavings(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := t.Context()
			m := newColModel(rt, r, crawltest.Tenant(t))
			step := func(f func(context.Context, *rapid.T)) func(*rapid.T) {
				return func(rt *rapid.T) { f(ctx, rt) }
			}
			rt.Repeat(map[string]func(*rapid.T){
				"":       step(m.check),
				"submit": step(m.submit), "submit2": step(m.submit),
				"commit": step(m.commit), "commit2": step(m.commit), "commit3": step(m.commit), "commit4": step(m.commit),
				"again": step(m.again),
				"kill":  step(m.kill),
				"item":  step(m.deleteItem),
				"all":   step(m.deleteAll),
				"read":  step(m.read), "read2": step(m.read),
			})
		})
	})
}
