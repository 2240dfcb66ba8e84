package crawler

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/extract"
	"example.com/trawl/pkg/fields"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

const (
	// maxHTML bounds the HTML that is kept of a page, in bytes.
	maxHTML = 4 << 20
	// maxPending bounds what this process has taken out of pages and not yet brought to the
	// store, in bytes before they are packed. Sixty-four of the largest pages would have several
	// times as much.
	maxPending = 64 << 20
)

// wants is what a job takes out of its pages; compiled once a slice. Its zero value takes nothing.
type wants struct {
	program    *fields.Program // nil: no fields
	formats    []string
	collection *crawl.Collection
	// under is the digest that visits are kept under, see [store.Visit]; empty without collection.
	under string
}

// wantsOf compiles what a plan takes out of its pages.
func wantsOf(p *crawl.Plan, by agent) (wants, error) {
	w := wants{formats: p.Formats, collection: p.Collection}
	if len(p.Fields) > 0 || p.Items != nil {
		program, faults := fields.Compile(fields.Spec{Fields: p.Fields, Items: p.Items})
		if len(faults) > 0 {
			return wants{}, fmt.Errorf("%s: %s", faults[0].Field, faults[0].Message)
		}
		w.program = program
	}
	if p.Collection != nil {
		w.under = underOf(p, by)
	}
	return w, nil
}

// takenBy is the version of what takes values out of pages. A change of it that gives other
// values for the same page must change it: pages that do not change would keep the old ones.
const takenBy = 1

// underOf is a digest of all that decides what is taken out of a page and what is sent for it.
func underOf(p *crawl.Plan, by agent) string {
	b, err := json.Marshal([]any{
		takenBy, p.Fields, p.Items, len(p.Formats) > 0, p.MainContent, p.ListPages, p.Collection.Key, p.Collection.Facets,
		p.Collection.Numbers, by.key(), p.Headers, p.IgnoreRobots,
	})
	if err != nil {
		return "" // of what was JSON before: it never fails, and if it did, no visit were kept
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// any reports whether anything is taken.
func (w *wants) any() bool { return w.program != nil || len(w.formats) > 0 || w.collection != nil }

// text reports whether something is taken of text that is no HTML.
func (w *wants) text() bool {
	return slices.Contains(w.formats, crawl.FormatText) || slices.Contains(w.formats, crawl.FormatMarkdown)
}

// pending bounds the work at pages in this process, and what waits there for the store.
type pending struct {
	// work has a place for each processor: more at once makes no page faster, and a small page
	// can give as much as a large one.
	work  chan struct{}
	bytes *semaphore.Weighted
}

func newPending() *pending {
	return &pending{work: make(chan struct{}, runtime.GOMAXPROCS(0)), bytes: semaphore.NewWeighted(maxPending)}
}

// free gives room back.
func (p *pending) free(bytes int64) {
	if bytes > 0 {
		p.bytes.Release(bytes)
	}
}

// taking is what one visit takes out of its page.
type taking struct {
	t        *turn
	page     *page
	source   crawl.URL // of the item
	listPage bool
	visit    *store.Visit // of a crawl before; nil: the page is asked for whatever it was

	seen   bool // the body was there to be read
	record *fields.Record
	items  []*fields.Record
	notes  tally
	// mark is the fingerprint of the document; empty: that of the body counts.
	mark   []byte
	packed store.Packed
	json   json.RawMessage // of record
	rows   []json.RawMessage
	weight int64 // bytes that it holds of pending
	took   time.Duration
}

// taking begins a visit; nil if the job takes nothing out of its pages.
func (t *turn) taking(p *page) *taking {
	if !t.wants.any() {
		return nil
	}
	k := &taking{t: t, page: p, source: p.url, notes: tally{}}
	if p.item.FetchURL != "" {
		k.source, _ = crawl.ParseURL(p.item.URL) // zero is no list page, and has no visit
	}
	k.listPage = !k.source.IsZero() && t.rules.ListPage(k.source)
	return k
}

// ask has a request bring what is needed.
func (k *taking) ask(ctx context.Context, req *fetch.Request) {
	if k == nil {
		return
	}
	req.Read, req.Text = k.read, k.t.wants.text()
	req.Validators = k.validators(ctx)
}

// read takes everything out of a page while its body is held: it is a [fetch.Request.Read].
func (k *taking) read(res *fetch.Result, c fetch.Content) error {
	if k.t.unwanted(res) {
		return nil
	}
	begun := time.Now()
	defer func() { k.took = time.Since(begun) }()
	ctx := k.t.fetches
	select {
	case k.t.c.pending.work <- struct{}{}:
		defer func() { <-k.t.c.pending.work }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.seen = true
	var content *crawl.Content
	var err error
	if c.HTML {
		content, err = k.html(res, c)
	} else {
		content, err = k.plain(res, c.Body)
	}
	if err != nil {
		return err
	}
	if err := k.pack(content); err != nil {
		return err
	}
	return ctx.Err()
}

// html takes fields and content out of a page. Fields first: they are of the page as it came.
func (k *taking) html(res *fetch.Result, page fetch.Content) (*crawl.Content, error) {
	w, body := &k.t.wants, page.Body
	doc, err := extract.Parse(body, res.Final)
	if err != nil {
		return nil, k.tooComplex(res, err)
	}
	doc.SetEncoding(page.Encoding)
	if w.program != nil && !k.listPage {
		result, err := w.program.Run(doc.Root(), res.Final)
		if err != nil {
			return nil, answered(err, res)
		}
		k.record, k.items = result.Record, result.Items
		k.notes.all(result.Notes())
	}
	if w.collection != nil && (w.program == nil || !w.program.HasFields()) {
		mark := doc.Fingerprint()
		k.mark = mark[:]
	}
	if len(w.formats) == 0 || k.t.fetches.Err() != nil {
		return nil, nil
	}
	content, notes := doc.Content(k.formats())
	k.notes.all(notes)
	if slices.Contains(w.formats, crawl.FormatHTML) {
		if content == nil {
			content = &crawl.Content{}
		}
		text := clip(string(body[:min(len(body), maxHTML+1)]), maxHTML)
		if len(text) < len(body) {
			k.notes.add(crawl.FormatHTML, crawl.NoteCut, 1)
		}
		content.HTML = &text
	}
	return content, nil
}

// plain takes the content of a text that is no HTML.
func (k *taking) plain(res *fetch.Result, text []byte) (*crawl.Content, error) {
	if err := k.lacks(res); err != nil {
		return nil, err
	}
	if len(k.t.wants.formats) == 0 {
		return nil, nil
	}
	content, notes := extract.Plain(text, res.Page.ContentType, k.formats())
	k.notes.all(notes)
	return content, nil
}

// formats says what content is taken.
func (k *taking) formats() extract.Wants {
	t := k.t
	return extract.Wants{
		Formats: t.wants.formats, MainContent: t.sl.Plan.MainContent,
		InScope: func(u crawl.URL) bool {
			if t.fetches.Err() != nil {
				return false // rules can take their time, and a page can have thousands of links
			}
			u = t.rules.Canonical(u)
			return t.rules.Check(u, k.page.item.Depth+1) == "" && t.c.o.Sources.Allows(u)
		},
	}
}

// tooComplex says what becomes of a page whose tree would be too large: one that lacks what is
// required fails for that reason, another is recorded without content.
func (k *taking) tooComplex(res *fetch.Result, err error) error {
	if crawl.CodeOf(err) != crawl.CodeTooComplex {
		return err
	}
	if k.lacks(res) != nil {
		return answered(err, res)
	}
	k.notes.say(aboutContent, crawl.NoteTooComplex)
	return nil
}

// aboutContent is what a note is about that is not about one format.
const aboutContent = "content"

// lacks is the fault of a page without a tree, from which nothing can be taken that is required.
func (k *taking) lacks(res *fetch.Result) error {
	if k.t.wants.program == nil || k.listPage {
		return nil
	}
	_, err := k.t.wants.program.Run(nil, res.Final)
	var f *crawl.Fault
	if !errors.As(err, &f) {
		return err
	}
	kind := res.Page.ContentType
	if kind == "" {
		kind = "of no known type"
	}
	lacks := *f
	lacks.Message = "The page is " + kind + " and no HTML. " + f.Message
	return answered(&lacks, res)
}

// answered adds to a fault of a page what the site answered.
func answered(err error, res *fetch.Result) error {
	var f *crawl.Fault
	if !errors.As(err, &f) {
		return err
	}
	with := *f
	with.Status = res.Page.Status
	return &with
}

// pack makes what the commit takes of what was found, and waits until there is room for it.
func (k *taking) pack(content *crawl.Content) error {
	var err error
	if k.record != nil {
		if k.json, err = k.record.MarshalJSON(); err != nil {
			return fmt.Errorf("fields: %w", err)
		}
	}
	size := int64(len(k.json))
	for _, item := range k.items {
		row, err := item.MarshalJSON()
		if err != nil {
			return fmt.Errorf("fields of an item: %w", err)
		}
		k.rows, size = append(k.rows, row), size+int64(len(row))
	}
	if k.packed, err = store.Pack(content); err != nil {
		return err
	}
	size = min(size+weigh(content), maxPending)
	if err := k.t.c.pending.bytes.Acquire(k.t.fetches, size); err != nil {
		return err
	}
	k.weight = size
	return nil
}

// weigh is about what a content takes before it is packed.
func weigh(c *crawl.Content) int64 {
	if c == nil {
		return 0
	}
	n := 0
	for _, s := range []*string{c.Markdown, c.Text, c.HTML} {
		if s != nil {
			n += len(*s)
		}
	}
	for i := range c.Links {
		n += len(c.Links[i].URL) + len(c.Links[i].Text) + len(c.Links[i].Rel)
	}
	return int64(n)
}

// finish looks at a page that was fetched: without a body to be read it has no fields.
func (k *taking) finish(res *fetch.Result) error {
	if k == nil || k.seen || k.t.unwanted(res) || res.NotModified || !res.Redirect.IsZero() {
		return nil
	}
	return k.lacks(res)
}

// spent is the time that was worked at the page.
func (k *taking) spent() time.Duration {
	if k == nil {
		return 0
	}
	return k.took
}

// holds is what the page holds of pending.
func (k *taking) holds() int64 {
	if k == nil {
		return 0
	}
	return k.weight
}

// enter adds to a commit what was taken.
func (k *taking) enter(res *fetch.Result, c *store.Commit) {
	if k == nil || c.NoIndex {
		return
	}
	a := c.Accepted
	a.Page.Fields, a.Content, a.Items = k.json, k.packed, k.rows
	a.ListPage = k.listPage || len(k.items) > 0
	a.NotModified = res.NotModified
	if k.t.wants.collection != nil {
		a.Visit = k.visited(res)
		if !a.NotModified && !k.listPage {
			a.Upserts = k.collect(res)
		}
	}
	a.Page.Notes = k.notes.notes()
}

// collect makes the upserts of the page: of its items where the job takes any, else of itself.
func (k *taking) collect(res *fetch.Result) []store.Upsert {
	w := &k.t.wants
	if w.program == nil || !w.program.HasItems() {
		page := candidate{values: k.record, fingerprint: k.fingerprint(res)}
		return upserts(w.collection, pagePath, k.page.item.URL, []candidate{page}, k.notes)
	}
	records := make([]candidate, len(k.items))
	for i, values := range k.items {
		records[i] = candidate{item: i + 1, values: values, fingerprint: fingerprintOf(k.rows[i])}
	}
	return upserts(w.collection, itemPath, k.page.item.URL, records, k.notes)
}

// fingerprint tells the content of the page's record from another.
func (k *taking) fingerprint(res *fetch.Result) [16]byte {
	switch {
	case k.json != nil:
		return fingerprintOf(k.json)
	case k.mark != nil:
		return [16]byte(k.mark)
	case res.Digest != (fetch.Digest{}):
		return res.Digest
	}
	// What was not read to its end is known by what the site says of it.
	return fingerprintOf([]byte(strings.Join([]string{
		res.Page.ContentType, res.Header.Get("Content-Length"), res.Header.Get("ETag"), res.Header.Get("Last-Modified"),
	}, "\n")))
}

func fingerprintOf(b []byte) [16]byte {
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}
