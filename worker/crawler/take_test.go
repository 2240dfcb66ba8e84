package crawler_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// planned is the plan of a spec as JSON, as a submission makes it; {{site}} is the URL of the site.
func planned(t *testing.T, siteURL, spec string) (crawl.Plan, []string) {
	t.Helper()
	var s crawl.Spec
	d := json.NewDecoder(strings.NewReader(strings.ReplaceAll(spec, "{{site}}", siteURL)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	all, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	plan, inputs, err := s.Plan(crawl.Limits{HostDelay: 0, HostConcurrency: 64}, all)
	if err != nil {
		t.Fatal(err)
	}
	plan.Delay, plan.Seeds = 0, nil
	var urls []string
	for _, in := range inputs {
		urls = append(urls, in.URL.String())
	}
	return plan, urls
}

// crawl submits a spec and waits for the end of the job.
func (b *bench) crawl(t *testing.T, s *crawltest.Site, spec string) (crawl.Job, []crawl.Page) {
	t.Helper()
	plan, urls := planned(t, s.URL, spec)
	job := b.submit(t, plan, urls...)
	return b.ended(t, job, time.Minute), b.records(t, job)
}

// byPath has the records by path, those of items with #n behind it.
func byPath(s *crawltest.Site, records []crawl.Page) map[string]crawl.Page {
	out := map[string]crawl.Page{}
	for _, p := range records {
		name := strings.TrimPrefix(p.SourceURL, s.URL)
		if p.Item > 0 {
			name += "#" + string(rune('0'+p.Item))
		}
		out[name] = p
	}
	return out
}

func fieldsOf(s *crawltest.Site, records []crawl.Page) map[string]string {
	out := map[string]string{}
	for name, p := range byPath(s, records) {
		out[name] = string(p.Fields)
	}
	return out
}

func (b *bench) failures(t *testing.T, j crawl.Job) map[string]crawl.Failure {
	t.Helper()
	page, err := b.store.Failures(t.Context(), crawl.JobRef{Tenant: b.tenant, ID: j.ID}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]crawl.Failure{}
	for _, f := range page.Failures {
		i := strings.Index(f.SourceURL[len("http://"):], "/")
		out[f.SourceURL[len("http://")+i:]] = f
	}
	return out
}

// Fields are taken of pages, and of no list pages; a page that lacks a required one fails and
// says which, and its links are not followed.
func TestFields(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte(`
-- index.html --
<title>List</title><a href="/a">a</a><a href="/b">b</a><a href="/file">f</a>
-- a --
<h1> A&nbsp;page </h1><i class=n>12</i><i class=n>x</i><i class=n>1.5</i><a href=/c>c</a>
-- b --
<p>nothing here<a href="/never">n</a>
-- c --
<meta name=robots content=noindex><p>not even a heading
-- file --
header: Content-Type: application/pdf

%PDF-1.4
`))
	b.worker(t, nil)
	j, records := b.crawl(t, s, `{"seed_url":"{{site}}/","max_pages":10,"list_pages":["/"],"fields":{
		"title":{"selector":"h1","required":true},"n":{"selector":".n","type":"number","many":true}}}`)
	if j.State != crawl.CompletedWithErrors || j.Accepted != 2 || j.Failed != 2 || j.Report.ListPages != 1 ||
		j.SkippedByReason[crawl.SkipNoIndex] != 1 || j.FailedByType[crawl.CodeMissingField] != 2 || j.Records != 2 {
		t.Errorf("ended as %+v", j)
	}
	want := map[string]string{"/": "", "/a": `{"title":"A page","n":[12,1.5]}`}
	if d := cmp.Diff(want, fieldsOf(s, records)); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
	notes := []crawl.Note{{About: "fields.n", What: crawl.NoteUnparsed, Count: 1}}
	if d := cmp.Diff(notes, byPath(s, records)["/a"].Notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	for path, f := range b.failures(t, j) {
		if f.ErrorType != crawl.CodeMissingField || !strings.Contains(f.Message, "fields.title") || f.Status != http.StatusOK ||
			strings.Contains(f.Message, "application/pdf") != (path == "/file") || f.Attempts != 1 {
			t.Errorf("%s failed as %+v", path, f)
		}
	}
	if s.Hits("/never") > 0 {
		t.Error("a link of a failed page was followed")
	}
}

// Each item of a page is a record behind that of the page.
func TestItems(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte(`
-- two --
<title>Two</title><h1>Head</h1><li><b>x</b><u>1</u></li><li><u>2</u></li><li><b>y</b></li>
-- none --
<h1>None</h1>
-- lacking --
<li><u>1</u></li><li><u>2</u></li>
`))
	b.worker(t, nil)
	j, records := b.crawl(t, s, `{"urls":["{{site}}/two","{{site}}/none","{{site}}/lacking"],"fields":{"head":{"selector":"h1"}},
		"items":{"selector":"li","fields":{"name":{"selector":"b","required":true},"n":{"selector":"u","type":"integer"}}}}`)
	if j.Accepted != 2 || j.Records != 4 || j.FailedByType[crawl.CodeMissingField] != 1 || j.Report.ListPages != 1 {
		t.Errorf("ended as %+v", j)
	}
	want := map[string]string{
		"/two": `{"head":"Head"}`, "/two#1": `{"name":"x","n":1}`, "/two#2": `{"name":"y","n":null}`, "/none": `{"head":"None"}`,
	}
	if d := cmp.Diff(want, fieldsOf(s, records)); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
	got := byPath(s, records)
	if p := got["/two#2"]; p.Title != "Two" || p.Status != http.StatusOK || p.Notes != nil {
		t.Errorf("record of an item: %+v", p)
	}
	notes := []crawl.Note{{About: "items.fields.name", What: crawl.NoteIncomplete, Count: 1}}
	if d := cmp.Diff(notes, got["/two"].Notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	if f := b.failures(t, j)["/lacking"]; !strings.Contains(f.Message, "items.fields.name") {
		t.Errorf("failed as %+v", f)
	}
}

// All formats come of one page as they were asked for, and of other text what it has.
func TestFormats(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	const page = "<!doctype html><html lang=en><title>Hi</title><h1>Head</h1><p>Some <b>bold</b> words." +
		"<a href='/in'>in</a> <a href='http://other.test/out' rel=nofollow>out</a>"
	s := crawltest.NewSite(t, []byte("-- page --\n"+page+"\n-- in --\n<p>in\n-- same --\n"+page+`
-- plain.txt --
<p>as it is
-- data.json --
{"a": 1}
-- image.png --
x
-- hidden --
<meta name=robots content=noindex><h1>Not this</h1>
-- index.html --
<a href=/page></a><a href=/plain.txt></a><a href=/data.json></a><a href=/image.png></a><a href=/hidden></a><a href=/same></a>
`))
	b.worker(t, nil)
	j, records := b.crawl(t, s, `{"seed_url":"{{site}}/","formats":["markdown","text","html","links","metadata"]}`)
	if j.Accepted != 7 || j.KeptBytes <= 0 || j.SkippedByReason[crawl.SkipNoIndex] != 1 {
		t.Errorf("ended as %+v", j)
	}
	got := byPath(s, records)
	first := got["/page"]
	if first.DuplicateOf != "" {
		first = got["/same"]
	}
	c := first.Content
	if c.IsZero() || c.Markdown == nil || c.Text == nil || c.HTML == nil || c.Metadata == nil || first.Fields != nil {
		t.Fatalf("content %+v", c)
	}
	if *c.HTML != page+"\n" || !strings.Contains(*c.Markdown, "# Head") || !strings.Contains(*c.Text, "Some bold words.") ||
		c.Metadata.Title != "Hi" || c.Metadata.Language != "en" {
		t.Errorf("content %q %q %q %+v", *c.HTML, *c.Markdown, *c.Text, c.Metadata)
	}
	links := []crawl.PageLink{
		{URL: s.URL + "/in", Text: "in", InScope: true}, {URL: "http://other.test/out", Text: "out", Rel: "nofollow"},
	}
	if d := cmp.Diff(links, c.Links); d != "" {
		t.Errorf("links (-want +got):\n%s", d)
	}
	copies := 0
	for _, path := range []string{"/page", "/same"} {
		if p := got[path]; p.DuplicateOf != "" && p.Content == nil {
			copies++
		}
	}
	if copies != 1 {
		t.Errorf("%d of two pages of the same bytes are recorded without content, want 1", copies)
	}
	// HTM-09: what is served as text is text, and has no links.
	plain := got["/plain.txt"]
	if c := plain.Content; c == nil || c.Text == nil || strings.TrimSpace(*c.Text) != "<p>as it is" || c.HTML != nil || plain.LinkCount != 0 {
		t.Errorf("plain text: %+v", plain)
	}
	if c := got["/data.json"].Content; c == nil || c.Text == nil || strings.TrimSpace(*c.Text) != `{"a": 1}` || c.Markdown != nil {
		t.Errorf("JSON: %+v", c)
	}
	if c := got["/image.png"].Content; c != nil {
		t.Errorf("an image has content: %+v", c)
	}
}

// What pages write wrong about themselves does not reach their fields.
func TestFieldsOfOddPages(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("<p>plain ascii filler</p>", 60)
	head := map[string]string{
		"/CHR-04b": "Content-Type: text/html; charset=utf-8\r\n\r\n\xef\xbb\xbf<head><title>Bom</title></head>",
		"/CHR-04a": "Content-Type: text/html; charset=windows-1251\r\n\r\n\xef\xbb\xbf<title>Привет</title>",
		"/CHR-08":  "Content-Type: text/html\r\n\r\n" + filler + "<p id=x>café €</p>",
		"/HTM-02":  "Content-Type: text/html\r\n\r\n<head><title>Real</title></head><body><svg><title>Icon</title></svg><title>Second</title>",
		"/HTM-06":  "Content-Type: text/html\r\n\r\n<div id=x>Hello<script>var a=1</script><style>p{}</style>&nbsp;World<br>next<p>para</p></div>",
		"/HTM-08":  "Content-Type: text/html\r\n\r\n%PDF-1.4\n\x00\x01<a href=/pdf2><title>no</title><p id=x>no",
		"/HTM-09":  "Content-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\n\r\n<title>no</title><p id=x>no<a href=/t>",
		"/real":    "Content-Type: text/html\r\n\r\n<title>%PDF- explained</title>",
	}
	b := newBench(t, crawltest.Any(t))
	s := answerRaw(t, func(w io.Writer, target string) {
		if head[target] == "" {
			_, _ = io.WriteString(w, notFound)
			return
		}
		_, _ = io.WriteString(w, okHead+head[target])
	})
	b.forget(t, s.url)
	b.worker(t, nil)
	links := ""
	for path := range head {
		links += "<a href=" + path + ">x</a>"
	}
	head["/"] = "Content-Type: text/html\r\n\r\n" + links
	spec := `{"seed_url":"{{site}}/","max_pages":50,"respect_robots":false,"formats":["text"],"list_pages":["/"],
		"fields":{"title":{"selector":"head > title"},"x":{"selector":"#x"}}}`
	j, records := b.crawl(t, &crawltest.Site{URL: s.url}, spec)
	want := map[string]string{
		"/CHR-04a": `{"title":"Привет","x":null}`, "/CHR-04b": `{"title":"Bom","x":null}`,
		"/CHR-08": `{"title":null,"x":"café €"}`, "/HTM-02": `{"title":"Real","x":null}`,
		"/HTM-06": `{"title":null,"x":"Hello World next para"}`, "/HTM-08": "", "/HTM-09": "", "/": "",
		"/real": `{"title":"%PDF- explained","x":null}`,
	}
	if d := cmp.Diff(want, fieldsOf(&crawltest.Site{URL: s.url}, records)); d != "" || j.Failed > 0 {
		t.Errorf("ended as %+v; fields (-want +got):\n%s", j, d)
	}
	for path, p := range byPath(&crawltest.Site{URL: s.url}, records) {
		if p.Content != nil && p.Content.Text != nil && strings.Contains(*p.Content.Text, "\uFEFF") {
			t.Errorf("%s: a byte order mark in the text", path)
		}
		if path == "/HTM-08" && (p.Content != nil || p.ContentType != "application/pdf") {
			t.Errorf("a PDF that says it is HTML: %+v", p)
		}
		if path == "/HTM-09" && (p.Content == nil || !strings.Contains(*p.Content.Text, "<p id=x>no")) {
			t.Errorf("text: %+v", p.Content)
		}
	}
	if s.times("/pdf2")+s.times("/t") > 0 {
		t.Error("what is no HTML has links")
	}
}

// SEL-01: a plan whose fields do not compile, which a newer API may have made, is nobody's crash:
// the job rests until a worker comes that can read it.
func TestUnreadableFieldsSEL01(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte("-- a --\n<p>a"))
	b.worker(t, nil)
	bad := list(1)
	bad.Fields = crawl.Fields{{Name: "x", Field: crawl.Field{Selector: "a["}}}
	job := b.submit(t, bad, s.URL+"/a")
	if j, _ := b.crawl(t, s, `{"urls":["{{site}}/a"],"fields":{"x":{"selector":"p"}}}`); j.Accepted != 1 {
		t.Errorf("a job beside it ended as %+v", j)
	}
	if j, err := b.store.Job(t.Context(), job); err != nil || j.State.Terminal() || s.Hits("/a") != 1 {
		t.Errorf("the job is %+v, %v", j, err)
	}
}

// panicking is a fetcher whose reader panics once it has the page at /bad.
type panicking struct{ crawler.Fetcher }

func (p panicking) Fetch(ctx context.Context, req fetch.Request) (fetch.Result, error) {
	if read := req.Read; strings.HasSuffix(req.URL.String(), "/bad") {
		req.Read = func(res *fetch.Result, c fetch.Content) error {
			if err := read(res, c); err != nil {
				return err
			}
			panic("in the middle of a page")
		}
	}
	return p.Fetcher.Fetch(ctx, req)
}

// A page that a defect of the extraction meets fails; the worker lives and the others come.
func TestPanicOfAReader(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte("-- bad --\n<p>x\n-- good --\n<p>y"))
	b.worker(t, func(o *crawler.ProcessOptions) {
		f, err := fetch.New(o.Fetch)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Fetcher = panicking{f}
	})
	j, records := b.crawl(t, s, `{"urls":["{{site}}/bad","{{site}}/good"],"fields":{"p":{"selector":"p"}}}`)
	if j.FailedByType[crawl.CodeInternal] != 1 || len(records) != 1 || string(records[0].Fields) != `{"p":"y"}` {
		t.Errorf("ended as %+v", j)
	}
}

// A page that would be too large as a tree fails where something of it is required, and is
// recorded without content where nothing is.
func TestTooComplex(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte("-- deep --\n<title>Deep</title><a href=/x>x</a>"+strings.Repeat("<div>", 5000)))
	b.worker(t, nil)
	j, records := b.crawl(t, s, `{"urls":["{{site}}/deep"],"formats":["text"],"fields":{"p":{"selector":"p"}},"collection":"c"}`)
	if j.Accepted != 1 || j.Report.Created != 1 {
		t.Fatalf("ended as %+v", j)
	}
	p := records[0]
	if d := cmp.Diff([]crawl.Note{{About: "content", What: crawl.NoteTooComplex}}, p.Notes); d != "" || p.Content != nil ||
		p.Fields != nil || p.Title != "Deep" || p.LinkCount != 1 {
		t.Errorf("recorded as %+v; notes (-want +got):\n%s", p, d)
	}
	j, _ = b.crawl(t, s, `{"urls":["{{site}}/deep"],"fields":{"p":{"selector":"p","required":true}}}`)
	f := b.failures(t, j)["/deep"]
	if f.ErrorType != crawl.CodeTooComplex || f.Message == "" || f.Status != http.StatusOK {
		t.Errorf("failed as %+v", f)
	}
}

// More content than may wait for the store at a time comes all the same, one page after another.
func TestMuchContent(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	const pages, size = 10, 4<<20 + 1000
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<title>"+r.URL.Path+"</title><p>"+strings.Repeat("é", size/2))
	}))
	b.worker(t, nil)
	plan := list(pages)
	plan.Formats = []string{crawl.FormatText, crawl.FormatHTML}
	var urls []string
	for i := range pages {
		urls = append(urls, s.URL+"/"+strconv.Itoa(i))
	}
	job := b.submit(t, plan, urls...)
	if j := b.ended(t, job, 5*time.Minute); j.Accepted != pages || j.KeptBytes <= 0 {
		t.Fatalf("ended as %+v", j)
	}
	records := b.records(t, job)
	if len(records) != pages {
		t.Errorf("%d records", len(records))
	}
	for _, p := range records {
		html := *p.Content.HTML
		if len(html) > 4<<20 || len(html) < 4<<20-1 || !utf8.ValidString(html) ||
			!slices.Contains(p.Notes, crawl.Note{About: crawl.FormatHTML, What: crawl.NoteCut, Count: 1}) {
			t.Errorf("%s has %d bytes of HTML, notes %v", p.URL, len(html), p.Notes)
		}
	}
}

// A cancel reaches a page whose content waits for the store, too.
func TestCancelWhileReading(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte("-- a --\n<p>x"))
	reading := make(chan struct{}, 1)
	b.worker(t, func(o *crawler.ProcessOptions) {
		f, err := fetch.New(o.Fetch)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Fetcher = slowly{f, reading}
	})
	plan, urls := planned(t, s.URL, `{"urls":["{{site}}/a"],"fields":{"p":{"selector":"p"}},"collection":"c"}`)
	job := b.submit(t, plan, urls...)
	crawltest.Receive(t, 20*time.Second, "a page that is read", reading)
	if _, err := b.store.Cancel(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if j := b.ended(t, job, 10*time.Second); j.State != crawl.Cancelled || j.Cancelled != 1 || j.Records != 0 || j.Report.Created != 0 {
		t.Errorf("ended as %+v", j)
	}
}

// slowly is a fetcher whose reader begins when the job wants the page no more.
type slowly struct {
	crawler.Fetcher
	reading chan struct{}
}

func (s slowly) Fetch(ctx context.Context, req fetch.Request) (fetch.Result, error) {
	read := req.Read
	req.Read = func(res *fetch.Result, c fetch.Content) error {
		s.reading <- struct{}{}
		<-ctx.Done()
		return read(res, c)
	}
	return s.Fetcher.Fetch(ctx, req)
}
