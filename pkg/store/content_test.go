package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

func pack(t testing.TB, c *crawl.Content) Packed {
	t.Helper()
	p, err := Pack(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func textOf(s string) *crawl.Content { return &crawl.Content{Text: &s} }

// sizeOf is what the record of a packed content says.
func sizeOf(p Packed) int64 { return int64(binary.BigEndian.Uint32(p.data[1:packedHead])) }

// What is kept comes back as it was, asked for and empty apart from not asked for.
func TestPack(t *testing.T) {
	t.Parallel()
	empty, short, long := "", "<p>ä & \U0001f600</p>\u2028\x00", strings.Repeat("<b>words</b> & ", 10_000)
	for name, tc := range map[string]struct {
		content *crawl.Content
		form    byte
	}{
		"empty text":    {&crawl.Content{Text: &empty}, formJSON},
		"no links":      {&crawl.Content{Links: []crawl.PageLink{}}, formJSON},
		"short":         {&crawl.Content{HTML: &short, Text: &empty}, formJSON},
		"long":          {&crawl.Content{Markdown: &long, HTML: &long}, formZstd},
		"bare metadata": {&crawl.Content{Metadata: &crawl.Metadata{}}, formJSON},
		"metadata": {&crawl.Content{Metadata: &crawl.Metadata{
			Title: "<T>", OpenGraph: map[string][]string{"image": {"a", "b"}}, JSONLD: []json.RawMessage{[]byte(`{"a":"<&>"}`)},
			Feeds: []crawl.Feed{{URL: "http://a.test/", Type: "x"}},
		}, Links: []crawl.PageLink{{URL: "http://a.test/", Text: "a", InScope: true}}}, formJSON},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pack(t, tc.content)
			if p.data[0] != tc.form {
				t.Errorf("packed in form %d, want %d", p.data[0], tc.form)
			}
			if tc.form == formJSON && len(p.data) != int(sizeOf(p))+packedHead {
				t.Errorf("%d bytes as stored for %d", len(p.data), sizeOf(p))
			}
			if bytes.Contains(p.data, []byte(`\u003c`)) {
				t.Error("HTML is escaped")
			}
			got, err := unpack(p.data, sizeOf(p))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.content, got); d != "" {
				t.Errorf("unpacked (-want +got):\n%s", d)
			}
		})
	}
	for name, c := range map[string]*crawl.Content{"nil": nil, "zero": {}} {
		if p := pack(t, c); p.data != nil {
			t.Errorf("%s: %q", name, p.data)
		}
	}
	if _, err := Pack(&crawl.Content{Metadata: &crawl.Metadata{JSONLD: []json.RawMessage{[]byte("{")}}}); err == nil {
		t.Error("what is no JSON was packed")
	}
}

// What does not compress is kept as it is, and one that huge content went through packs on.
func TestPackWhatDoesNotCompress(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 2*keepBuffer)
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that is the same each time
	for i := range noise {
		noise[i] = byte(' ' + r.IntN(90))
	}
	for _, text := range []string{string(noise[:1100]), string(noise), "small"} {
		c := textOf(text)
		p := pack(t, c)
		got, err := unpack(p.data, sizeOf(p))
		if err != nil || *got.Text != text || len(p.data) > packedHead+int(sizeOf(p)) {
			t.Errorf("%d bytes of text: %d packed, error %v", len(text), len(p.data), err)
		}
	}
}

// Many workers pack and many readers unpack at once.
func TestPackAtOnce(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 50 {
				text := strings.Repeat(fmt.Sprint(i, k, " "), 100*i+k)
				p, err := Pack(textOf(text))
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := unpack(p.data, sizeOf(p)); err != nil || *got.Text != text {
					t.Errorf("another text came back: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// Whatever JSON can say comes back.
func TestPackAny(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ToValidUTF8(rapid.String().Draw(t, "text"), "")
		text = strings.Repeat(text, rapid.IntRange(0, 200).Draw(t, "times"))
		c := &crawl.Content{Text: &text, Links: []crawl.PageLink{{URL: text}}}
		p, err := Pack(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(p.data, sizeOf(p))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, got); d != "" {
			t.Fatal(d)
		}
	})
}

func framed(t testing.TB, form byte, size int, payload []byte) []byte {
	t.Helper()
	return append(packHead(form, size, 0), payload...)
}

func compressed(t testing.TB, text string, o ...zstd.EOption) []byte {
	t.Helper()
	var b bytes.Buffer
	e, err := zstd.NewWriter(&b, append(o, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	// Flushed before its end, so that the frame does not say how long it will be.
	if _, err = e.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(e.Flush(), e.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is damaged is told, and nothing beyond the size in the record is made of it.
func TestUnpackDamaged(t *testing.T) {
	t.Parallel()
	good := pack(t, textOf(strings.Repeat("text ", 1000)))
	bomb := compressed(t, strings.Repeat("\x00", 16<<20))
	for name, tc := range map[string]struct {
		data []byte
		size int64
		want string
	}{
		"nothing":             {nil, 0, "is not the one"},
		"a head that ends":    {[]byte{formJSON, 0, 0}, 0, "is not the one"},
		"another size":        {good.data, sizeOf(good) + 1, "is not the one"},
		"a negative size":     {good.data, -1, "is not the one"},
		"a later version":     {framed(t, 9, 2, []byte("{}")), 2, "a later version"},
		"raw, too short":      {framed(t, formJSON, 3, []byte("{}")), 3, "has 2 bytes"},
		"raw, too long":       {framed(t, formJSON, 1, []byte("{}")), 1, "has 2 bytes"},
		"no JSON":             {framed(t, formJSON, 2, []byte("{x")), 2, "invalid character"},
		"cut":                 {good.data[:len(good.data)-3], sizeOf(good), "does not decompress"},
		"no zstd":             {framed(t, formZstd, 2, []byte("{}")), 2, "does not decompress"},
		"a bomb":              {framed(t, formZstd, 1000, bomb), 1000, "does not decompress"},
		"two frames":          {framed(t, formZstd, 2, append(compressed(t, "{}"), compressed(t, "{}")...)), 2, "does not decompress"},
		"a frame too short":   {framed(t, formZstd, 4, compressed(t, "{}")), 4, "has 2 bytes"},
		"above what may be":   {framed(t, formZstd, maxContent+1, bomb), maxContent + 1, "is not the one"},
		"a frame of one more": {framed(t, formZstd, 1, compressed(t, "{}")), 1, "does not decompress"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := unpack(tc.data, tc.size)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("content %v, error %v, want %q", c, err, tc.want)
			}
		})
	}
	if c, err := unpack(framed(t, formZstd, 2, compressed(t, "{}")), 2); err != nil || !c.IsZero() {
		t.Errorf("a frame without its size: %v, %v", c, err)
	}
}

func FuzzUnpack(f *testing.F) {
	long := strings.Repeat("<p>words</p> ", 500)
	for _, c := range []*crawl.Content{textOf("short"), {HTML: &long, Links: []crawl.PageLink{{URL: "http://a.test/"}}}} {
		p := pack(f, c)
		f.Add(p.data, sizeOf(p))
	}
	f.Add(framed(f, formZstd, 1000, compressed(f, strings.Repeat("\x00", 1<<20))), int64(1000))
	f.Add(framed(f, formZstd, 2, compressed(f, "{}")), int64(2))
	f.Fuzz(func(t *testing.T, data []byte, size int64) {
		if size = min(size, 1<<20); len(data) >= packedHead && size >= 0 {
			binary.BigEndian.PutUint32(data[1:packedHead], uint32(size)) //nolint:gosec // of 0 to 1 MiB
		}
		if c, err := unpack(data, size); err == nil {
			again := pack(t, c)
			if c.IsZero() {
				return
			}
			if _, err := unpack(again.data, sizeOf(again)); err != nil {
				t.Errorf("what was unpacked does not pack: %v", err)
			}
		}
		if size < 0 || len(data) < packedHead {
			return
		}
		if text, err := inflate(data[packedHead:], size); err == nil && int64(cap(text)) > size {
			t.Errorf("%d bytes of room for a content of %d", cap(text), size)
		}
	})
}

// page60 is what a job keeps of an article of 60 KB: the words of a language come again as
// those of a text do, the tags more often.
func page60() *crawl.Content {
	r := rand.New(rand.NewPCG(60, 1024)) //nolint:gosec // a benchmark that is the same each time
	z := rand.NewZipf(r, 1.3, 4, 3000)
	words := make([]string, 3001)
	for i := range words {
		b := make([]byte, 2+r.IntN(9))
		for k := range b {
			b[k] = "eeeetttaaooiinnsshhrrdlucmfwygpbvk"[r.IntN(34)]
		}
		words[i] = string(b)
	}
	var html, markdown strings.Builder
	for part := 0; html.Len() < 60_000; part++ {
		fmt.Fprintf(&html, "<section id=\"part-%d\" class=\"article__section\"><h2>Part %d</h2>\n", part, part)
		fmt.Fprintf(&markdown, "## Part %d\n\n", part)
		for range 3 {
			var p []string
			for range 60 + r.IntN(60) {
				p = append(p, words[z.Uint64()])
			}
			text, link := strings.Join(p, " "), fmt.Sprintf("https://site.test/articles/%d", r.IntN(1e6))
			fmt.Fprintf(&html, "<p class=\"article__text\">%s <a class=\"link\" href=\"%s\">more</a></p>\n", text, link)
			fmt.Fprintf(&markdown, "%s [more](%s)\n\n", text, link)
		}
		html.WriteString("</section>\n")
	}
	h, m := html.String(), markdown.String()
	return &crawl.Content{HTML: &h, Markdown: &m}
}

func BenchmarkPack(b *testing.B) {
	c := page60()
	p := pack(b, c)
	b.SetBytes(sizeOf(p))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Pack(c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(sizeOf(p))/float64(len(p.data)), "ratio")
}

func BenchmarkUnpack(b *testing.B) {
	p := pack(b, page60())
	b.SetBytes(sizeOf(p))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := unpack(p.data, sizeOf(p)); err != nil {
			b.Fatal(err)
		}
	}
}
