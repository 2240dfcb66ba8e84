package crawler_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

// mapOf is a site whose one sitemap takes its time.
type mapOf struct {
	slow
	n     int
	takes time.Duration
	reads *int
}

func (m mapOf) Raw(ctx context.Context, req fetch.RawRequest) (fetch.Raw, error) {
	if req.Read == nil {
		return fetch.Raw{Status: http.StatusNotFound}, nil
	}
	*m.reads++
	var b strings.Builder
	b.WriteString(`<urlset>`)
	for i := range m.n {
		fmt.Fprintf(&b, "<url><loc>http://a.test/p/%d</loc></url>", i)
	}
	b.WriteString(`</urlset>`)
	head := fetch.Raw{Status: http.StatusOK, Final: req.URL}
	return head, req.Read(head, &drip{s: b.String(), step: b.Len()/10 + 1, pause: m.takes / 10})
}

// drip is a text that comes slowly.
type drip struct {
	s     string
	step  int
	pause time.Duration
}

func (d *drip) Read(p []byte) (int, error) {
	if d.s == "" {
		return 0, io.EOF
	}
	<-time.After(d.pause)
	n := copy(p, d.s[:min(len(d.s), d.step)])
	d.s = d.s[n:]
	return n, nil
}

// dialing is a store that tells of its connections.
type dialing struct {
	*desk
	dials func() uint64
}

func (d dialing) Dials() uint64 { return d.dials() }

// A store that went back lacks parts of a sitemap whose end is on its way: it is read again, and
// ends with all of its parts there.
func TestLostPartsOfASitemap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads, ends int
		has, whole := map[int]bool{}, 0
		wentBack := false
		todo := []crawl.Item{{Kind: crawl.ItemSitemap, N: 1, URL: "http://a.test/sitemap.xml"}}
		d := &desk{}
		d.exchange = func(x store.Exchange) store.Exchanged {
			out := grantAll(x)
			for _, m := range x.Maps {
				verdict := store.Done
				switch {
				case m.After != 0 && !has[m.After]: // as commit_map.lua
					verdict = store.Stale
				case m.Outcome == store.MapPart:
					has[m.Part] = true
				case m.Outcome == store.MapRead && wentBack: // before, it is the call that fails
					ends++
					whole = len(has)
				}
				out.Mapped = append(out.Mapped, store.MapCommitted{Verdict: verdict})
			}
			for _, r := range x.Returns {
				todo = append(todo, r.Item)
			}
			if x.Lease > 0 {
				out.Items, todo = todo, nil
			}
			out.Queued = int64(len(todo))
			return out
		}
		d.fails = func(x store.Exchange) error {
			for _, m := range x.Maps {
				if m.Outcome == store.MapRead && !wentBack {
					wentBack = true
					clear(has) // a replica that lacks them became the master
					return crawl.Faultf(crawl.CodeUnavailable, "away")
				}
			}
			return nil
		}
		d.serve(t, mapOf{n: 1200, takes: time.Second, reads: &reads})
		if !wentBack || reads != 2 || ends != 1 || whole == 0 {
			t.Errorf("went back %v, %d reads, %d ends with %d parts; want it read twice, and ended once with parts", wentBack, reads, ends, whole)
		}
	})
}

// New connections alone, as where idle ones are closed, have no sitemap read again.
func TestSitemapOverNewConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads, ends int
		d := &desk{}
		todo := []crawl.Item{{Kind: crawl.ItemSitemap, N: 1, URL: "http://a.test/sitemap.xml"}}
		d.exchange = func(x store.Exchange) store.Exchanged {
			out := grantAll(x)
			for _, m := range x.Maps {
				if m.Outcome == store.MapRead {
					ends++
				}
				out.Mapped = append(out.Mapped, store.MapCommitted{Verdict: store.Done})
			}
			for _, r := range x.Returns {
				todo = append(todo, r.Item)
			}
			if x.Lease > 0 {
				out.Items, todo = todo, nil
			}
			out.Queued = int64(len(todo))
			return out
		}
		begun := time.Now()
		dials := func() uint64 { return uint64(time.Since(begun) / time.Second) }
		serveOn(t, d, dialing{d, dials}, mapOf{n: 1200, takes: 3 * time.Second, reads: &reads})
		if reads != 1 || ends != 1 {
			t.Errorf("read %d times, and ended %d times", reads, ends)
		}
	})
}

// A slice that hears of a pause while a slow page is in flight gives its place away with the next
// round trip, and ends when that page has: a resumed job is not to stand still so long.
func TestPausedSliceRetires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var retired, ended time.Duration
		begun := time.Now()
		d := &desk{}
		leased := false
		d.exchange = func(x store.Exchange) store.Exchanged {
			out := grantAll(x)
			if x.Retire {
				retired = time.Since(begun)
			}
			if len(x.Commits) > 0 {
				ended = time.Since(begun)
			}
			if x.Lease > 0 && !leased {
				leased = true
				out.Items = items("http://a.test/1")
			}
			return out
		}
		d.paused = func() bool { return time.Since(begun) > time.Second }
		d.serve(t, slow(20*time.Second))
		if retired == 0 || retired > 5*time.Second || ended < 20*time.Second {
			t.Errorf("it retired after %v, and the page was recorded after %v", retired, ended)
		}
	})
}
