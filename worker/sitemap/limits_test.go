package sitemap

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// generated is a document that exists only while it is read.
type generated struct {
	n     int // entries
	tail  string
	i     int
	rest  string
	given int64
}

func (g *generated) Read(p []byte) (int, error) {
	for g.rest == "" {
		switch {
		case g.i == 0:
			g.rest = decl + "<urlset" + ns + ">\n"
		case g.i <= g.n:
			g.rest = fmt.Sprintf("<url><loc>https://site.test/catalogue/item-%06d?a=1&amp;b=2</loc>"+
				"<lastmod>2024-05-06T12:30:15+02:00</lastmod></url>\n", g.i)
		case g.i == g.n+1:
			g.rest = g.tail
		default:
			return 0, io.EOF
		}
		g.i++
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	g.given += int64(n)
	return n, nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory: the largest sitemap that the protocol allows is read in the memory
// of a small one. It is not parallel: the heap belongs to all.
func TestMemory(t *testing.T) {
	const bound = 2 << 20
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		z := gzip.NewWriter(pw)
		_, err := io.Copy(z, &generated{n: DefaultMaxURLs, tail: "</urlset>"})
		done <- errors.Join(err, z.Close(), pw.Close())
	}()
	before, most, n := heap(), uint64(0), 0
	res, err := Read(pr, Options{}, func(Entry) bool {
		if n++; n%5000 == 0 {
			most = max(most, heap())
		}
		return true
	})
	// What is behind the root is not read, and the writer waits to be rid of it.
	_, _ = io.Copy(io.Discard, pr)
	if err := errors.Join(err, <-done); err != nil || res.Entries != DefaultMaxURLs || res.Cut != "" {
		t.Fatalf("%+v, %v", res, err)
	}
	// What the writer needs is in it as well.
	if most > before+bound {
		t.Errorf("%d bytes more in use while it was read; want at most %d", most-before, bound)
	}
}

// TestStreams: an entry is handed out when it was read, not when all was.
func TestStreams(t *testing.T) {
	t.Parallel()
	g := &generated{n: 10_000, tail: "</urlset>"}
	seen, size := 0, int64(len("<url><loc>https://site.test/catalogue/item-000001?a=1&amp;b=2</loc>"+
		"<lastmod>2024-05-06T12:30:15+02:00</lastmod></url>\n"))
	_, err := Read(g, Options{}, func(Entry) bool {
		seen++
		if ahead := g.given - int64(seen)*size; ahead > 2*bufferBytes {
			t.Errorf("%d bytes were read for %d entries", g.given, seen)
			return false
		}
		return true
	})
	if err != nil || seen == 0 {
		t.Errorf("%d entries, %v", seen, err)
	}
}

// TestStop: when no more is wanted nothing more is handed out or read, and it is
// no fault.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"xml": plain, "text": strings.Join(ab, "\n"), "cut off": "<urlset><loc>/a</loc><loc>/b</loc><loc>/c</loc>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			res, err := Read(io.MultiReader(strings.NewReader(doc), iotest.ErrReader(io.ErrNoProgress)), Options{},
				func(Entry) bool { n++; return false })
			if err != nil || n != 1 || res.Entries != 1 || res.Cut != "" {
				t.Errorf("%d entries, %+v, %v", n, res, err)
			}
		})
	}
}

// TestMaxURLs: a document at the limit is whole, one beyond it is cut.
func TestMaxURLs(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"xml": plain, "text": strings.Join(ab, "\n"), "unwrapped": "<urlset><loc>/a</loc><loc>/b</loc></urlset>",
		"gzip":  gzipped(plain),
		"index": "<sitemapindex><sitemap><loc>/a</loc></sitemap><sitemap><loc>/b</loc></sitemap></sitemapindex>",
		"rss":   rss("<item><link>/a</link></item><item><link>/b</link></item>"),
		"atom":  atom("<entry><link href='/a'/></entry><entry><link href='/b'/></entry>"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for limit, cut := range map[int]Limit{1: LimitURLs, 2: "", 3: "", 0: ""} {
				out := read(doc, Options{MaxURLs: limit})
				want := 2
				if cut != "" {
					want = limit
				}
				if out.Err != nil || out.Res.Cut != cut || len(out.Entries) != want || out.Res.Entries != want {
					t.Errorf("limit %d: %+v, %v", limit, out.Res, out.Err)
				}
			}
		})
	}
}

// TestMaxBytes: of a document over the limit only whole addresses are taken, in
// whatever layer the bytes are.
func TestMaxBytes(t *testing.T) {
	t.Parallel()
	text := "http://site.test/a\nhttp://site.test/bcd\n"
	for name, doc := range map[string]string{
		"xml": plain, "text": text, "gzip": gzipped(plain), "gzip text": gzipped(text), "twice": gzipped(gzipped(plain)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := read(doc, Options{})
			size := whole.Res.Bytes
			for limit := int64(1); limit <= size; limit++ {
				out := read(doc, Options{MaxBytes: limit})
				if out.Res.Bytes > limit {
					t.Errorf("limit %d: %d bytes were read", limit, out.Res.Bytes)
				}
				if !slices.Equal(out.Entries, whole.Entries[:min(len(out.Entries), len(whole.Entries))]) {
					t.Errorf("limit %d: %v", limit, out.Entries)
				}
				// Compressed, a small document is larger than it is.
				if fits := limit >= max(size, int64(len(doc))); fits != (out.Res.Cut == "") || fits && out.Err != nil {
					t.Errorf("limit %d of %d: %+v, %v", limit, size, out.Res, out.Err)
				}
				if out.Err != nil && (!errors.Is(out.Err, ErrNotSitemap) || out.Res.Kind != "") {
					t.Errorf("limit %d: %+v, %v", limit, out.Res, out.Err)
				}
			}
		})
	}
}

// TestLimited: exactly the limit comes out, and the error stays.
func TestLimited(t *testing.T) {
	t.Parallel()
	const whole = "0123456789"
	for n := range int64(len(whole)) + 2 {
		l := &limited{r: strings.NewReader(whole), left: n}
		var b strings.Builder
		_, err := io.CopyBuffer(&b, l, make([]byte, 4))
		got, want := b.String(), whole[:min(n, int64(len(whole)))]
		if cut := len(want) < len(whole); got != want || errors.Is(err, errLimit) != cut || !cut && err != nil {
			t.Errorf("%d: %q, %v", n, got, err)
		}
		if m, again := l.Read(make([]byte, 1)); m != 0 || again == nil || err != nil && !errors.Is(again, err) {
			t.Errorf("%d: then %d bytes, %v", n, m, again)
		}
	}
}

// TestBomb is SM-03: what a small file expands to is bounded, whatever it is and
// however often it was compressed. Nothing is kept of it, TestMemory and
// TestLargeParts say so; here it counts how much is expanded.
func TestBomb(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	head := "<urlset><url><loc>/a</loc></url>"
	for name, tt := range map[string]struct {
		doc  string
		kind Kind
		err  error
	}{
		"SM-03":           {bomb("", "a"), "", ErrNotSitemap},
		"SM-03 twice":     {gzipped(bomb("", "a")), "", ErrNotSitemap},
		"blank":           {bomb("", " "), "", ErrNotSitemap},
		"in an address":   {bomb(head+"<url><loc>", "a"), KindURLSet, nil},
		"between entries": {bomb(head, "\n"), KindURLSet, nil},
		"in a comment":    {bomb(head+"<!--", "-"), KindURLSet, nil},
		"in a name":       {bomb(head+"<", "a"), KindURLSet, nil},
		"text":            {bomb("http://s/a\n", "a"), KindText, nil},
		// What the outer layer expands to is nothing in the inner one.
		"empty members": {gzipped(strings.Repeat(gzipped(""), limit/10)), "", ErrNotSitemap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := read(tt.doc, Options{MaxBytes: limit})
			if out.Res.Bytes > limit || out.Res.Kind != tt.kind || !errors.Is(out.Err, tt.err) {
				t.Errorf("%+v, %v", out.Res, out.Err)
			}
			if out.Res.Cut != LimitBytes {
				t.Errorf("%+v is not cut", out.Res)
			}
			if n := len(out.Entries); (tt.kind != "") != (n == 1) {
				t.Errorf("%d entries", n)
			}
		})
	}
}

// bomb compresses head with 2 MiB of fill behind it.
func bomb(head, fill string) string {
	return gzipped(head + strings.Repeat(fill, 2<<20))
}

// TestEntities: what a document type defines is not expanded, a billion laughs
// are one.
func TestEntities(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`<!DOCTYPE urlset [<!ENTITY l0 "lol">`)
	for i := range 9 {
		fmt.Fprintf(&b, `<!ENTITY l%d "%s">`, i+1, strings.Repeat(fmt.Sprintf("&l%d;", i), 10))
	}
	b.WriteString("]><urlset><url><loc>/&l9;</loc></url></urlset>")
	if out := read(b.String(), Options{}); out.Err != nil || !cmp.Equal([]string{"/&l9;"}, locs(out.Entries)) {
		t.Errorf("%.99v, %v", out.Entries, out.Err)
	}
}

// TestReaderFails: the reader's error comes out, wherever it strikes, and what was
// complete before it stands.
func TestReaderFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("the network is gone")
	for name, doc := range map[string]string{
		"xml": plain, "text": strings.Join(ab, "\n"), "gzip": gzipped(plain), "declared": "<?xml encoding='big5'?>" + plain,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := range len(doc) {
				var got []string
				res, err := Read(io.MultiReader(strings.NewReader(doc[:n]), iotest.ErrReader(broken)), Options{},
					func(e Entry) bool { got = append(got, e.Loc); return true })
				if err == nil && len(got) == 2 {
					continue // only what is behind the root was missing, as the sum of gzip
				}
				if !errors.Is(err, broken) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrNotSitemap) {
					t.Errorf("after %d bytes: %v", n, err)
				}
				if !slices.Equal(got, ab[:min(len(got), 2)]) || res.Entries != len(got) {
					t.Errorf("after %d bytes: %q, %+v", n, got, res)
				}
			}
		})
	}
}
