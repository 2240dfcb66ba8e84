package crawler_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// board is a site whose pages can change and know whether they did.
type board struct {
	*crawltest.Site

	mu     sync.Mutex
	pages  map[string]string
	dated  bool           // validate by date, not by ETag
	since  time.Time      // of all pages
	bodies map[string]int // sent, by path
	header http.Header    // of all answers
}

func newBoard(t *testing.T, pages map[string]string) *board {
	t.Helper()
	s := &board{pages: pages, bodies: map[string]int{}, header: http.Header{}, since: time.Now().Add(-time.Hour)}
	s.Site = crawltest.NewHandlerSite(t, s)
	return s
}

func (s *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, ok := s.pages[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	for name, values := range s.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if s.dated {
		w.Header().Set("Last-Modified", s.since.UTC().Format(http.TimeFormat))
		if r.Header.Get("If-Modified-Since") == w.Header().Get("Last-Modified") {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	} else {
		w.Header().Set("ETag", fmt.Sprintf("W/\"%x\"", body))
		if r.Header.Get("If-None-Match") == w.Header().Get("ETag") {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	s.bodies[r.URL.Path]++
	_, _ = w.Write([]byte(body))
}

func (s *board) put(path, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = body
	if body == "" {
		delete(s.pages, path)
	}
}

// sent answers what was sent since it was asked last.
func (s *board) sent() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.bodies
	s.bodies = map[string]int{}
	return out
}

const postings = `{"seed_url":"{{site}}/","list_pages":["/"],"fields":{"title":{"selector":"h1"},
	"city":{"selector":".city"},"pay":{"selector":".pay","type":"number"}},
	"collection":{"name":"jobs","facets":["city"],"numbers":["pay"]}}`

func posting(title, city, pay string) string {
	return "<title>" + title + "</title><h1>" + title + "</h1><p class=city>" + city + "<p class=pay>" + pay
}

func newPostings(t *testing.T) *board {
	t.Helper()
	return newBoard(t, map[string]string{
		"/":  "<a href=/1>1</a><a href=/2>2</a><a href=/3>3</a>",
		"/1": posting("One", "Berlin", "100"), "/2": posting("Two", "Berlin", "200.5"), "/3": posting("Three", "Köln", ""),
	})
}

func (b *bench) items(t *testing.T, name string) map[string]store.CollectionItem {
	t.Helper()
	page, err := b.store.Items(t.Context(), store.ItemQuery{Tenant: b.tenant, Collection: name, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]store.CollectionItem{}
	for _, it := range page.Items {
		if _, twice := out[it.Key]; twice {
			t.Errorf("item %s is there twice", it.Key)
		}
		out[it.Key] = it
	}
	return out
}

func changes(s *crawltest.Site, records []crawl.Page) map[string]crawl.Change {
	out := map[string]crawl.Change{}
	for name, p := range byPath(s, records) {
		out[name] = p.Change
	}
	return out
}

// A collection knows what each crawl created, changed and left as it was; pages that the site
// says are unchanged are not read again, and what a complete crawl no longer finds is missing.
func TestCollection(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b := newBench(t, r)
		s := newPostings(t)
		b.worker(t, nil)
		step := func(name string, want crawl.Report, bodies map[string]int, records map[string]crawl.Change) []crawl.Page {
			t.Helper()
			j, got := b.crawl(t, s.Site, postings)
			if j.Report != want || j.Accepted != int64(len(records)) {
				t.Errorf("%s: report %+v of %d pages (%s), want %+v", name, j.Report, j.Accepted, j.Error, want)
			}
			if d := cmp.Diff(bodies, s.sent()); d != "" {
				t.Errorf("%s: bodies (-want +got):\n%s", name, d)
			}
			if d := cmp.Diff(records, changes(s.Site, got)); d != "" {
				t.Errorf("%s: changes (-want +got):\n%s", name, d)
			}
			return got
		}
		step("first", crawl.Report{ListPages: 1, Created: 3}, map[string]int{"/": 1, "/1": 1, "/2": 1, "/3": 1},
			map[string]crawl.Change{"/": "", "/1": crawl.Created, "/2": crawl.Created, "/3": crawl.Created})

		same := step("second", crawl.Report{ListPages: 1, Unchanged: 3}, map[string]int{},
			map[string]crawl.Change{"/": "", "/1": crawl.Unchanged, "/2": crawl.Unchanged, "/3": crawl.Unchanged})
		for path, p := range byPath(s.Site, same) {
			if p.Status != http.StatusNotModified || p.Fields != nil || p.Content != nil || p.Bytes != 0 ||
				p.LinkCount != map[string]int{"/": 3}[path] || (p.Title == "") != (path == "/") {
				t.Errorf("second: %s is recorded as %+v", path, p)
			}
		}

		s.put("/2", posting("Two", "Hamburg", "201"))
		step("third", crawl.Report{ListPages: 1, Updated: 1, Unchanged: 2}, map[string]int{"/2": 1},
			map[string]crawl.Change{"/": "", "/1": crawl.Unchanged, "/2": crawl.Updated, "/3": crawl.Unchanged})

		s.put("/", "<a href=/1>1</a><a href=/2>2</a><a href=/4>4</a>")
		s.put("/3", "")
		s.put("/4", posting("Four", "Berlin", "5"))
		step("fourth", crawl.Report{ListPages: 1, Created: 1, Unchanged: 2, Missing: 1}, map[string]int{"/": 1, "/4": 1},
			map[string]crawl.Change{"/": "", "/1": crawl.Unchanged, "/2": crawl.Unchanged, "/4": crawl.Created})

		items := b.items(t, "jobs")
		for path, fields := range map[string]string{
			"/1": `{"title":"One","city":"Berlin","pay":100}`, "/2": `{"title":"Two","city":"Hamburg","pay":201}`,
			"/3": `{"title":"Three","city":"Köln","pay":null}`, "/4": `{"title":"Four","city":"Berlin","pay":5}`,
		} {
			it := items[s.URL+path]
			if string(it.Fields) != fields || it.MissingSince.IsZero() == (path == "/3") {
				t.Errorf("item %s: %s, missing since %v", path, it.Fields, it.MissingSince)
			}
		}
		a, err := b.store.Analytics(t.Context(), b.tenant, "jobs", 10)
		if err != nil || a.Total != 4 || a.Missing != 1 || a.Numbers["pay"].Avg != "102" {
			t.Errorf("analytics %+v, %v", a, err)
		}
	})
}

// A page is asked for with its date where it has no ETag, and not at all where another thing is
// taken out of it, or where content is to be kept.
func TestConditionalRequests(t *testing.T) {
	t.Parallel()
	all := map[string]int{"/": 1, "/1": 1, "/2": 1, "/3": 1}
	for name, tt := range map[string]struct {
		prepare func(*board)
		second  func(spec string) string
		want    map[string]int
	}{
		"by date":               {func(s *board) { s.dated = true }, nil, map[string]int{}},
		"a date of this second": {func(s *board) { s.dated, s.since = true, time.Now().Add(time.Minute) }, nil, all},
		"other fields": {nil, func(spec string) string {
			return strings.Replace(spec, `"selector":"h1"`, `"selector":"title"`, 1)
		}, all},
		"another user agent": {nil, func(spec string) string {
			return strings.Replace(spec, `{"seed_url"`, `{"user_agent":"Other/1.0","seed_url"`, 1)
		}, all},
		"formats": {nil, func(spec string) string {
			return strings.Replace(spec, `{"seed_url"`, `{"formats":["text"],"seed_url"`, 1)
		}, all},
		"no collection": {nil, func(spec string) string {
			return spec[:strings.Index(spec, `,
	"collection"`)] + "}"
		}, all},
		"another depth": {nil, func(spec string) string {
			return strings.Replace(spec, `{"seed_url"`, `{"max_depth":0,"seed_url"`, 1)
		}, map[string]int{}},
		"a page that expires": {func(s *board) {
			s.header.Set("X-Robots-Tag", "unavailable_after: 2090-01-01")
		}, nil, all},
		"nofollow stays": {func(s *board) {
			s.pages["/"] = `<meta name=robots content=nofollow>` + s.pages["/"]
		}, nil, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, crawltest.Any(t))
			s := newPostings(t)
			if tt.prepare != nil {
				tt.prepare(s)
			}
			b.worker(t, nil)
			first, _ := b.crawl(t, s.Site, postings)
			s.sent()
			spec := postings
			if tt.second != nil {
				spec = tt.second(spec)
			}
			second, _ := b.crawl(t, s.Site, spec)
			if d := cmp.Diff(tt.want, s.sent()); d != "" {
				t.Errorf("bodies (-want +got):\n%s", d)
			}
			if first.Accepted != second.Accepted && name != "another depth" || second.Failed > 0 {
				t.Errorf("%d pages at first, then %+v", first.Accepted, second)
			}
			for _, r := range s.Requests() {
				if s.dated && r.Header.Get("If-None-Match") != "" {
					t.Errorf("%s was asked for with an ETag that it has not", r.URI)
				}
			}
		})
	}
}

// A redirected page has no visit: what it led to may be another one the next time.
func TestRedirectsAreAskedAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := newBoard(t, map[string]string{"/there": posting("T", "Bonn", "1")})
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, s.URL+"/there", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/again", http.StatusFound)
		case "/again":
			s.put("/again", posting("A", "Bonn", "1"))
			s.ServeHTTP(w, r)
		}
	}))
	b.worker(t, nil)
	for range 2 {
		j, _ := b.crawl(t, site, `{"urls":["{{site}}/away","{{site}}/here"],"fields":{"title":{"selector":"h1"}},"collection":"c"}`)
		if d := cmp.Diff(map[string]int{"/there": 1, "/again": 1}, s.sent()); d != "" || j.Accepted != 2 {
			t.Errorf("%+v; bodies (-want +got):\n%s", j, d)
		}
	}
	for _, r := range slices.Concat(s.Requests(), site.Requests()) {
		if r.Header.Get("If-None-Match") != "" {
			t.Errorf("%s was asked for with validators", r.URI)
		}
	}
	if items := b.items(t, "c"); len(items) != 2 || items[site.URL+"/away"].URL != s.URL+"/there" {
		t.Errorf("items %+v", items)
	}
}

// Items enter by a field; those without it, and all but the first of one key, are not collected.
func TestCollectionOfItems(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := newBoard(t, map[string]string{
		"/list": "<li><b>a</b><u>1</u></li><li><u>2</u></li><li><b>a</b><u>3</u></li><li><b>c</b><u>4</u></li>",
	})
	b.worker(t, nil)
	const spec = `{"urls":["{{site}}/list"],"items":{"selector":"li","fields":{"id":{"selector":"b"},
		"n":{"selector":"u","type":"integer"}}},"collection":{"name":"c","key":"id","numbers":["n"]}}`
	j, records := b.crawl(t, s.Site, spec)
	if want := (crawl.Report{ListPages: 1, Created: 2, NotCollected: 2}); j.Report != want || j.Records != 5 {
		t.Errorf("report %+v of %d records, want %+v", j.Report, j.Records, want)
	}
	got := byPath(s.Site, records)
	want := map[string]crawl.Change{"/list": "", "/list#1": crawl.Created, "/list#2": "", "/list#3": "", "/list#4": crawl.Created}
	if d := cmp.Diff(want, changes(s.Site, records)); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	notes := []crawl.Note{
		{About: "items.fields.id", What: "duplicate_key", Count: 1}, {About: "items.fields.id", What: crawl.NoteNoKey, Count: 1},
	}
	if d := cmp.Diff(notes, got["/list"].Notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	if j, _ := b.crawl(t, s.Site, spec); j.Report.Unchanged != 2 || len(b.items(t, "c")) != 2 {
		t.Errorf("a second crawl reports %+v", j.Report)
	}
}

// Without fields the page itself is what enters: it is the same as long as a reader sees the
// same, and what is no HTML as long as its bytes are.
func TestCollectionOfPages(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, nil)
	put := func(page, data string) {
		s.Put("page", []byte("<title>T</title>"+page))
		s.Put("data.json", []byte(data))
	}
	b.worker(t, nil)
	const spec = `{"urls":["{{site}}/page","{{site}}/data.json"],"collection":"c"}`
	for _, step := range []struct {
		page, data string
		want       crawl.Report
	}{
		{"<p>one", "{}", crawl.Report{Created: 2}},
		{"<p class=x>one</p>", "{}", crawl.Report{Unchanged: 2}},
		{"<p>two", "{ }", crawl.Report{Updated: 2}},
	} {
		put(step.page, step.data)
		if j, _ := b.crawl(t, s, spec); j.Report != step.want {
			t.Errorf("%q is reported as %+v, want %+v", step.page, j.Report, step.want)
		}
	}
}

// A worker that is lost in the middle of a crawl leaves each item once, and the counts right.
func TestLostWorkerCollectsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	const pages = 40
	held, open := make(chan struct{}, pages), make(chan struct{})
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "5") {
			held <- struct{}{}
			select {
			case <-open:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = fmt.Fprintf(w, "<!doctype html><h1>%s</h1>", r.URL.Path)
	}))
	first := b.worker(t, func(o *crawler.ProcessOptions) { o.Grace = 0 })
	urls := make([]string, 0, pages)
	for i := range pages {
		urls = append(urls, fmt.Sprintf(`"{{site}}/%d"`, i))
	}
	plan, inputs := planned(t, s.URL, `{"urls":[`+strings.Join(urls, ",")+`],"concurrency":8,
		"fields":{"title":{"selector":"h1","required":true}},"collection":"c"}`)
	job := b.submit(t, plan, inputs...)
	for range 4 {
		crawltest.Receive(t, 20*time.Second, "a page in flight", held)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(open)
	b.worker(t, nil)
	j := b.ended(t, job, time.Minute)
	if j.Accepted != pages || j.Report.Created != pages || j.Report.Updated+j.Report.Unchanged+j.Report.NotCollected != 0 {
		t.Errorf("ended as %+v", j)
	}
	if items := b.items(t, "c"); len(items) != pages {
		t.Errorf("%d items, want %d", len(items), pages)
	}
}
