package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest/gensite"
	"example.com/trawl/pkg/extract"
	"example.com/trawl/pkg/fields"
	"example.com/trawl/pkg/store"
)

const (
	articleBytes = 60_000
	// articlePages are enough for the rate of a worker, and take it a few seconds.
	articlePages = 1000
	// stageTime is how long each stage of an extraction is measured, in so many rounds.
	stageTime   = 2 * time.Second
	stageRounds = 5
)

// articleFormats and articleFields are what is taken out of each article: ten fields, by class, by place, by attribute,
// by XPath, of each type that takes work, and one that is derived.
var articleFormats = []string{crawl.FormatMarkdown, crawl.FormatMetadata}

const articleFields = `{
	"title":    {"selector": "h1", "required": true},
	"author":   {"selector": "article > header .author a"},
	"date":     {"selector": "time", "attr": "datetime", "type": "date"},
	"lead":     {"selector": "article p:first-of-type"},
	"sections": {"selector": "article h2", "many": true},
	"links":    {"selector": "article section a[href]", "attr": "href", "many": true},
	"cells":    {"selector": "table td:nth-child(2)", "many": true, "type": "number"},
	"code":     {"selector": "xpath://pre/code"},
	"words":    {"selector": ".count", "regex": "([0-9]+) words", "type": "integer"},
	"minutes":  {"expr": "ceil(words / 200)"}
}`

// extraction is the plan of the bench job that takes formats and fields.
func extraction(p *crawl.Plan) error {
	p.Formats, p.MaxKeptBytes = articleFormats, 1<<30
	return json.Unmarshal([]byte(articleFields), &p.Fields)
}

// articles is a site of pages as those of a magazine are: of 60 KB, each linked as those of [gensite] are.
type articles struct {
	tree            *gensite.Site
	body            []byte
	seen            []atomic.Bool
	total, distinct atomic.Int64
}

func newArticles(pages, links int) *articles {
	return &articles{
		tree: gensite.New(pages, links, 0, 0), body: articleBody(articleBytes - 3000), seen: make([]atomic.Bool, pages),
	}
}

// Reset forgets what was served.
func (a *articles) Reset() {
	for i := range a.seen {
		a.seen[i].Store(false)
	}
	a.total.Store(0)
	a.distinct.Store(0)
}

// Total returns how many pages were served.
func (a *articles) Total() int64 { return a.total.Load() }

// Distinct returns how many different pages were served.
func (a *articles) Distinct() int64 { return a.distinct.Load() }

// ServeHTTP implements [http.Handler].
func (a *articles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, ok := strings.CutPrefix(r.URL.Path, "/p/")
	i, err := strconv.Atoi(number)
	if !ok || err != nil || i < 0 || i >= len(a.seen) {
		http.NotFound(w, r) // robots.txt as well, which then allows everything
		return
	}
	a.total.Add(1)
	if !a.seen[i].Swap(true) {
		a.distinct.Add(1)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(a.page(i)) // the client may be gone
}

// page is article i. Only its head and its links are its own.
func (a *articles) page(i int) []byte {
	b := make([]byte, 0, articleBytes+1000)
	b = fmt.Appendf(b, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Article %[1]d · The Merrowby Mail</title>
<meta name="description" content="What article %[1]d is about, in a sentence that a search engine would show.">
<meta property="og:title" content="Article %[1]d"><meta property="og:type" content="article">
<meta property="og:image" content="/images/%[1]d.jpg"><meta name="twitter:card" content="summary">
<link rel="canonical" href="/p/%[1]d"><link rel="alternate" type="application/rss+xml" href="/feed.xml" title="News">
<script type="application/ld+json">{"@context": "https://schema.org", "@type": "Article", "headline": "Article %[1]d",
"datePublished": "2026-03-02T09:00:00Z", "author": {"@type": "Person", "name": "Ada Merrow"}}</script>
</head><body><nav><ul>
`, i)
	for _, to := range a.tree.Links(i) {
		b = fmt.Appendf(b, "<li><a href=\"/p/%[1]d\">Article %[1]d</a></li>\n", to)
	}
	b = fmt.Appendf(b, `</ul></nav><main><article><header><h1>Article %d</h1><p class="author">By <a href="/ada">Ada Merrow</a>,
<time datetime="2026-03-02T09:00:00Z">2 March 2026</time>, <span class="count">8400 words</span></p></header>
`, i)
	return append(b, a.body...)
}

// articleBody is sections of prose, links, a list, a table and code, until it has about so many bytes.
func articleBody(size int) []byte {
	const sentence = "The <em>trawl</em> is set at dusk, and hauled before the tide has turned again: " +
		"nobody asks why &amp; nobody has to. "
	var b []byte
	for n := 1; len(b) < size; n++ {
		b = fmt.Appendf(b, "<section id=\"s%[1]d\"><h2>Part %[1]d of the story</h2>\n<p>%[2]s</p>\n<p>%[3]s<a href=\"/notes/%[1]d\">"+
			"Note %[1]d</a> has <strong>more</strong>.</p>\n", n, strings.Repeat(sentence, 6), strings.Repeat(sentence, 3))
		b = fmt.Appendf(b, "<ul><li>First, the net %[1]d</li><li>Second, <a href=\"https://example.org/%[1]d\">the boat</a></li></ul>\n"+
			"<table><tr><th>Day</th><th>Catch</th></tr><tr><td>Monday</td><td>%[1]d.5</td></tr><tr><td>Tuesday</td><td>%[1]d</td></tr></table>\n"+
			"<pre><code>haul(net, %[1]d)\n</code></pre>\n<figure><img src=\"/img/%[1]d.png\" alt=\"Net %[1]d\"></figure></section>\n", n)
	}
	return append(b, "</article></main><footer><p>The Merrowby Mail</p></footer></body></html>\n"...)
}

// stage is one part of the extraction of a page, and what it costs.
type stage struct {
	Name      string
	CPUMicros float64
	Allocs    float64
	KiB       float64 // allocated
}

// stages measures the extraction of one article in this process: each stage alone, and last all
// together. Nothing else may run in the process meanwhile.
func stages(ctx context.Context) ([]stage, error) {
	e := extractor{page: newArticles(1, 20).page(0)}
	var err error
	if e.at, err = crawl.ParseURL("https://mail.example.org/p/0"); err != nil {
		return nil, err
	}
	var plan crawl.Plan
	if err := extraction(&plan); err != nil {
		return nil, err
	}
	var faults []crawl.FieldFault
	if e.program, faults = fields.Compile(fields.Spec{Fields: plan.Fields}); len(faults) > 0 {
		return nil, fmt.Errorf("the fields of the bench do not compile: %v", faults)
	}
	doc, err := extract.Parse(e.page, e.at)
	if err != nil {
		return nil, err
	}
	whole, _ := doc.Content(extract.Wants{Formats: articleFormats})
	steps := []struct {
		name string
		run  func() error
	}{
		{"parse", func() error { _, err := extract.Parse(e.page, e.at); return err }},
		{"10 fields", func() error { return e.fields(doc) }},
		{"markdown", func() error { _, err := content(doc, crawl.FormatMarkdown); return err }},
		{"metadata", func() error { _, err := content(doc, crawl.FormatMetadata); return err }},
		{"pack", func() error { _, err := store.Pack(whole); return err }},
		{"all", e.all},
	}
	out := make([]stage, len(steps))
	// In turn, and of each the round that was disturbed least.
	for round := range stageRounds {
		for i, step := range steps {
			cost, err := measure(ctx, step.run)
			if err != nil {
				return nil, err
			}
			if cost.Name = step.name; round == 0 || cost.CPUMicros < out[i].CPUMicros {
				out[i] = cost
			}
		}
	}
	return out, nil
}

type extractor struct {
	page    []byte
	at      crawl.URL
	program *fields.Program
}

func (e *extractor) fields(doc *extract.Document) error {
	result, err := e.program.Run(doc.Root(), e.at)
	if err != nil {
		return err
	}
	_, err = json.Marshal(result.Record)
	return err
}

// all does what a worker does with a page that it has.
func (e *extractor) all() error {
	doc, err := extract.Parse(e.page, e.at)
	if err != nil {
		return err
	}
	if err := e.fields(doc); err != nil {
		return err
	}
	c, err := content(doc, articleFormats...)
	if err == nil {
		_, err = store.Pack(c)
	}
	return err
}

func content(doc *extract.Document, formats ...string) (*crawl.Content, error) {
	c, _ := doc.Content(extract.Wants{Formats: formats})
	if c.IsZero() {
		return nil, errors.New("the article has no content")
	}
	return c, nil
}

// measure runs f for its part of [stageTime] and answers what one run costs, garbage collection included.
func measure(ctx context.Context, f func() error) (stage, error) {
	if err := f(); err != nil { // what is made once is no cost of a page
		return stage{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := ownCPU()
	runs := 0
	for begun := time.Now(); time.Since(begun) < stageTime/stageRounds && ctx.Err() == nil; runs++ {
		if err := f(); err != nil {
			return stage{}, err
		}
	}
	until := ownCPU()
	runtime.ReadMemStats(&after)
	n := float64(runs)
	return stage{
		CPUMicros: (until - cpu) / n, Allocs: float64(after.Mallocs-before.Mallocs) / n,
		KiB: float64(after.TotalAlloc-before.TotalAlloc) / n / 1024,
	}, ctx.Err()
}

// measureExtraction is measured by the part "extraction".
func measureExtraction(ctx context.Context, r *rig) (findings, error) {
	runs, err := crawlArticles(ctx, r)
	if err != nil {
		return findings{}, err
	}
	costs, err := stages(ctx)
	if err != nil {
		return findings{}, err
	}
	crawls := costTable(fmt.Sprintf("Markdown, metadata and 10 fields of %s pages of 60 KB", number(runs[0].pages, 0)), runs)
	rate := overOf(runs, func(c fleetCrawl) float64 { return c.rate() })
	crawls.Notes = append([]string{fmt.Sprintf("One worker crawls %s pages/s (%s–%s) so, by a job that the API takes.",
		number(rate.Median, 0), number(rate.Min, 0), number(rate.Max, 0))}, crawls.Notes...)
	return findings{Tables: []table{crawls, stageTable(costs)}}, nil
}

// crawlArticles has one worker take formats and fields out of a site of articles, as often as there are rounds, and
// once before to warm up. When it returns nothing runs any more, as [stages] asks.
func crawlArticles(ctx context.Context, r *rig) ([]fleetCrawl, error) {
	o := r.o
	o.Site, o.Pages = "articles", min(o.Pages, articlePages)
	s, err := r.newSite(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	f, err := r.newFleet(ctx, fleetOptions{apis: 1, workers: 1})
	if err != nil {
		return nil, err
	}
	defer f.stop()
	spec := r.wholeSite(s)
	if err := extracting(&spec); err != nil {
		return nil, err
	}
	var runs []fleetCrawl
	for round := range o.Rounds + 1 {
		if round > 0 {
			progress("round %d of %d", round, o.Rounds)
		}
		c, err := f.crawlWhole(ctx, s, spec, o.Pages)
		if err == nil && c.job.KeptBytes == 0 {
			err = errors.New("the job kept nothing of its pages")
		}
		if err != nil {
			return nil, err
		}
		if round > 0 {
			runs = append(runs, c)
		}
	}
	return runs, nil
}

// extracting has a job take the formats and fields of [extraction] out of the articles. The other links that they have
// lead nowhere.
func extracting(spec *client.Spec) error {
	spec.Include = []string{"/p/*"}
	for _, format := range articleFormats {
		spec.Formats = append(spec.Formats, client.ContentFormat(format))
	}
	return json.Unmarshal([]byte(articleFields), &spec.Fields)
}

// stageTable is the table of the stages.
func stageTable(stages []stage) table {
	t := table{
		Title: "One page of 60 KB, stage by stage, without network and queue",
		Columns: []column{
			{"cpu_us", "CPU µs", 0, false}, {"allocations", "allocations", 0, false}, {"kib", "KiB allocated", 0, false},
		},
		Notes: []string{fmt.Sprintf("Of each stage the round of %d that was disturbed least, garbage collection included.", stageRounds)},
	}
	for _, s := range stages {
		t.Rows = append(t.Rows, row{s.Name, map[string]cell{
			"cpu_us": over(s.CPUMicros), "allocations": over(s.Allocs), "kib": over(s.KiB),
		}})
	}
	return t
}
