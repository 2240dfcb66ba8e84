package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocolly/colly/v2"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// contender is one of those who crawl the same site in turn.
type contender struct {
	name  string
	crawl func(context.Context) (crawled, error)
}

// crawled is what one crawl of a whole site took.
type crawled struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`      // seconds, user and system, of the process that crawls
	PeakMiB float64 `json:"peak_mib"` // of that process, since its start
	Told    float64 `json:"told"`     // pages that a subscriber was told of; of spider-rs with titles alone

	fetches, pages float64 // as the site counted them: all, and different ones
	siteCPU        float64 // seconds of the site
}

// rate is that of different pages.
func (c crawled) rate() float64 { return c.pages / c.Seconds }

// longestCrawl bounds one crawl, so that a contender that hangs ends the run and not its reader's patience.
func longestCrawl(pages int) time.Duration {
	return 2*time.Minute + time.Duration(pages)*10*time.Millisecond
}

// The transports that colly is measured with.
const (
	tuned = "tuned" // keeps a connection for each request in flight
	plain = "plain" // what a collector has when it is told nothing: it keeps two
)

// rivals are the contenders that need nothing but this program.
func (r *rig) rivals(s *site) []contender {
	self := func(name, role, tell string, parallel int) contender {
		return contender{name, func(ctx context.Context) (crawled, error) {
			return alone(ctx, s, r.o.Pages, func(ctx context.Context) (*child, error) {
				o := r.o
				o.Start, o.Tell, o.InFlight = s.url(0)+"/p/0", tell, parallel
				return r.startSelf(ctx, o, role)
			})
		}}
	}
	return []contender{
		self("colly, 16 parallel, tuned transport", "colly", tuned, 16),
		self(collyAsMany, "colly", tuned, 64),
		self("colly, 64 parallel, its own transport", "colly", plain, 64),
		self("net/http and a tokenizer, no queue", "floor", "", r.o.InFlight),
	}
}

// leastShare is how much of the site a contender must have crawled to be compared by its rate of different pages.
const leastShare = 0.99

// alone measures a contender that crawls the site, from its front page on, in a process that ends with the crawl and
// whose last line is what it took.
func alone(ctx context.Context, s *site, pages int, start func(context.Context) (*child, error)) (crawled, error) {
	ctx, cancel := context.WithTimeout(ctx, longestCrawl(pages))
	defer cancel()
	if err := s.reset(ctx); err != nil {
		return crawled{}, err
	}
	m, err := newMeter(s.child)
	if err != nil {
		return crawled{}, err
	}
	c, err := start(ctx)
	if err != nil {
		return crawled{}, err
	}
	out, err := c.rest()
	if err != nil {
		return crawled{}, errors.Join(ctx.Err(), err)
	}
	var took crawled
	if err := json.Unmarshal(out, &took); err != nil {
		return crawled{}, fmt.Errorf("what %s says it took, %q: %w", c.name, out, err)
	}
	_, used, err := m.read()
	if err != nil {
		return crawled{}, err
	}
	took.siteCPU = used["site"].CPU
	took.fetches, took.pages, err = s.hits(ctx)
	if err == nil && took.pages < leastShare*float64(pages) {
		err = fmt.Errorf("%s crawled %.0f of %d pages: that is no crawl of the site", c.name, took.pages, pages)
	}
	return took, err
}

// measureSelf measures a crawl by this process and writes what it took.
func measureSelf(w io.Writer, crawl func() (failed int64, err error)) error {
	cpu, begun := ownCPU(), time.Now()
	failed, err := crawl()
	if err != nil {
		return err
	}
	took := crawled{Seconds: time.Since(begun).Seconds(), CPU: (ownCPU() - cpu) / 1e6}
	if failed > 0 {
		progress("%d requests failed", failed)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return fmt.Errorf("find myself: %w", err)
	}
	// Not what getrusage says, which for a process that another started begins with the memory of that one.
	if took.PeakMiB, err = (&child{name: "this process", cmd: &exec.Cmd{Process: self}}).peak(); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(took)
}

// runColly is colly in a process of its own.
func runColly(ctx context.Context, o options) error {
	return measureSelf(os.Stdout, func() (int64, error) { return crawlByColly(ctx, o) })
}

// crawlByColly crawls as colly documents it: asynchronous, a limit rule, links visited from OnHTML.
func crawlByColly(ctx context.Context, o options) (failed int64, err error) {
	var lost atomic.Int64
	c := colly.NewCollector(colly.Async(true), colly.StdlibContext(ctx))
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: o.InFlight}); err != nil {
		return 0, fmt.Errorf("limit: %w", err)
	}
	if o.Tell == tuned {
		t := keeping(o.InFlight)
		defer t.CloseIdleConnections()
		c.WithTransport(t)
	}
	c.OnHTML("title", func(*colly.HTMLElement) {})
	c.OnHTML("a[href]", func(e *colly.HTMLElement) {
		_ = e.Request.Visit(e.Attr("href")) // visited before: an error
	})
	c.OnError(func(*colly.Response, error) { lost.Add(1) })
	if err := c.Visit(o.Start); err != nil {
		return 0, fmt.Errorf("visit: %w", err)
	}
	c.Wait()
	return lost.Load(), ctx.Err()
}

// keeping is a transport that keeps so many connections to a host.
func keeping(n int) *http.Transport { return &http.Transport{MaxIdleConns: n, MaxIdleConnsPerHost: n} }

// runFloor is the floor in a process of its own.
func runFloor(ctx context.Context, o options) error {
	return measureSelf(os.Stdout, func() (int64, error) { return crawlFloor(ctx, o) })
}

// floor is the least that a crawl can be: goroutines that share a set and a channel. It forgets everything when the
// process ends, heeds no robots.txt and no host, and keeps nothing.
type floor struct {
	client *http.Client
	host   string
	todo   chan *url.URL
	left   sync.WaitGroup // pages that were found and not read
	failed atomic.Int64

	mu   sync.Mutex
	seen map[string]bool
}

// crawlFloor crawls a host of at most o.Pages pages by the floor.
func crawlFloor(ctx context.Context, o options) (failed int64, err error) {
	t := keeping(o.InFlight)
	defer t.CloseIdleConnections()
	start, err := url.Parse(o.Start)
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	f := &floor{
		client: &http.Client{Transport: t}, host: start.Host, todo: make(chan *url.URL, o.Pages), seen: make(map[string]bool, o.Pages),
	}
	f.found(start)
	var readers sync.WaitGroup
	for range o.InFlight {
		readers.Go(func() {
			for u := range f.todo {
				if err := f.read(ctx, u); err != nil {
					f.failed.Add(1)
				}
				f.left.Done()
			}
		})
	}
	f.left.Wait()
	close(f.todo)
	readers.Wait()
	return f.failed.Load(), ctx.Err()
}

// found has a page of the host read, unless that was found before.
func (f *floor) found(u *url.URL) {
	if u.Host != f.host {
		return
	}
	key := u.String()
	f.mu.Lock()
	known := f.seen[key]
	f.seen[key] = true
	f.mu.Unlock()
	if known {
		return
	}
	f.left.Add(1)
	select {
	case f.todo <- u:
	default: // more pages than the site is said to have
		f.failed.Add(1)
		f.left.Done()
	}
}

func (f *floor) read(ctx context.Context, u *url.URL) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	res, err := f.client.Do(req)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	z := html.NewTokenizer(bufio.NewReader(res.Body))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		case html.StartTagToken, html.SelfClosingTagToken:
			f.tag(u, z)
		default:
		}
	}
}

// tag looks at a tag of the page at u: a link is followed, and the title is read, as the others do.
func (f *floor) tag(u *url.URL, z *html.Tokenizer) {
	name, more := z.TagName()
	switch atom.Lookup(name) {
	case atom.Title:
		if z.Next() == html.TextToken {
			_ = string(z.Text())
		}
	case atom.A:
		for more {
			var key, value []byte
			if key, value, more = z.TagAttr(); string(key) == "href" {
				if to, err := u.Parse(string(value)); err == nil {
					f.found(to)
				}
			}
		}
	default:
	}
}
