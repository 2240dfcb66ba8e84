package sitemap

import (
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/unicode"
	"pgregory.net/rapid"
)

var (
	escapeAll  = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;", "é", "&#xE9;")
	escapeSome = strings.NewReplacer("&", "&#38;", "<", "&#x3c;")
)

// TestRoundTrip: whatever way a generator of sitemaps writes entries, they come
// out as they went in.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loc := rapid.StringMatching(`https?://[a-z]{1,9}\.test/([a-zé中&;#<>"'%= -]{0,20}[a-z])?`)
		at := rapid.Int64Range(0, 4e9)
		index := rapid.Bool().Draw(t, "index")
		var want []Entry
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			e := Entry{Loc: loc.Draw(t, "loc"), Index: index}
			if rapid.Bool().Draw(t, "dated") {
				e.LastMod = time.Unix(at.Draw(t, "at"), 0).UTC()
			}
			want = append(want, e)
		}
		doc := write(t, want, index)
		out := read(doc, Options{})
		kind := KindURLSet
		if index {
			kind = KindIndex
		}
		if out.Err != nil || out.Res.Kind != kind || out.Res.Entries != len(want) || out.Res.Skipped != 0 {
			t.Fatalf("%+v, %v\n%q", out.Res, out.Err, doc)
		}
		if diff := cmp.Diff(want, out.Entries); diff != "" {
			t.Fatalf("(-want +got):\n%s\n%q", diff, doc)
		}
	})
}

// write makes a sitemap of entries, in a way that t draws.
func write(t *rapid.T, entries []Entry, index bool) string {
	prefix := rapid.SampledFrom([]string{"", "sm:", "a.b-c:"}).Draw(t, "prefix")
	blank := rapid.SampledFrom([]string{"", "\n  ", "\r\n", "<x/>", "<!-- <loc>no</loc> -->", "<i:loc>/no</i:loc>"})
	write := rapid.SampledFrom([]func(string) string{
		escapeAll.Replace, escapeSome.Replace,
		func(s string) string { return "<![CDATA[" + s + "]]>" },
		func(s string) string { return "\n  " + escapeAll.Replace(s) + "\n" },
	})
	root, entry := prefix+"urlset", prefix+"url"
	if index {
		root, entry = prefix+"sitemapindex", prefix+"sitemap"
	}
	var b strings.Builder
	b.WriteString(rapid.SampledFrom([]string{"", "<?xml version='1.0'?>", decl}).Draw(t, "declaration"))
	fmt.Fprintf(&b, "<%s xmlns:x='y>'>", root)
	for _, e := range entries {
		loc := fmt.Sprintf("<%[1]sloc>%[2]s</%[1]sloc>", prefix, write.Draw(t, "write")(e.Loc))
		if !e.LastMod.IsZero() {
			mod := fmt.Sprintf("<%[1]slastmod>%[2]s</%[1]slastmod>", prefix, e.LastMod.Format(time.RFC3339))
			if rapid.Bool().Draw(t, "mod first") {
				loc = mod + blank.Draw(t, "blank") + loc
			} else {
				loc += blank.Draw(t, "blank") + mod
			}
		}
		fmt.Fprintf(&b, "<%s>%s%s%s</%s>", entry, blank.Draw(t, "blank"), loc, blank.Draw(t, "blank"), entry)
	}
	fmt.Fprintf(&b, "</%s>", root)
	doc := b.String()
	switch rapid.IntRange(0, 3).Draw(t, "encoding") {
	case 1:
		doc = "\ufeff" + doc
	case 2:
		doc = utf16(doc, unicode.LittleEndian, unicode.UseBOM)
	case 3:
		doc = utf16(doc, unicode.BigEndian, unicode.IgnoreBOM)
	}
	for range rapid.IntRange(0, maxGzip).Draw(t, "gzip") {
		doc = gzipped(doc)
	}
	return doc
}

// FuzzRead: whatever the bytes, the reading ends, what it hands out is bounded and
// of the promised form, and how the bytes come in does not matter.
func FuzzRead(f *testing.F) {
	f.Add([]byte(plain), 1, int64(0))
	f.Add([]byte(gzipped(plain)), 0, int64(50))
	f.Add([]byte(utf16(plain, unicode.LittleEndian, unicode.UseBOM)), 0, int64(0))
	f.Add([]byte(strings.Join(ab, "\r")+"\r# x"), 2, int64(99))
	f.Add([]byte(rss("<item><guid isPermaLink=x>http://a</guid><pubDate>1 Jan 24 00:00 EST</pubDate>")), 0, int64(0))
	f.Add([]byte(atom("<entry><link rel=alternate href=&#x26;><updated>2024</updated></entry>")), 0, int64(0))
	f.Add([]byte("<?xml encoding=gbk?><!D [<!--'--><!ENTITY '>'>]><urlset><loc>\xff<![CDATA[]]]]>\n x"), 0, int64(0))
	f.Add([]byte("<a:feed><a:entry/><entry></a:entry><a:link/><link href></a:feed"), 0, int64(0))
	f.Fuzz(func(t *testing.T, doc []byte, maxURLs int, maxBytes int64) {
		o := Options{MaxURLs: maxURLs, MaxBytes: maxBytes}
		out := read(string(doc), o)
		bound := int64(DefaultMaxBytes)
		if maxBytes > 0 {
			bound = maxBytes
		}
		if maxURLs > 0 && len(out.Entries) > maxURLs || len(out.Entries) != out.Res.Entries || out.Res.Bytes > bound {
			t.Errorf("%d entries, %+v", len(out.Entries), out.Res)
		}
		if (out.Res.Kind == "") != (out.Err != nil && len(out.Entries) == 0 && out.Res.Kind == "") {
			t.Errorf("no kind, but %+v, %v", out.Res, out.Err)
		}
		for _, e := range out.Entries {
			if e.Loc == "" || len(e.Loc) > maxValueBytes || !utf8.ValidString(e.Loc) ||
				strings.TrimSpace(e.Loc) != e.Loc || strings.ContainsAny(e.Loc, "\r\n") {
				t.Errorf("address %q", e.Loc)
			}
		}
		var slow outcome
		slow.Res, slow.Err = Read(iotest.OneByteReader(strings.NewReader(string(doc))), o, func(e Entry) bool {
			slow.Entries = append(slow.Entries, e)
			return true
		})
		// Byte by byte, less is read ahead.
		if slow.Res.Bytes = out.Res.Bytes; slow.Res != out.Res || (slow.Err == nil) != (out.Err == nil) {
			t.Errorf("byte by byte %+v, %v; at once %+v, %v", slow.Res, slow.Err, out.Res, out.Err)
		}
		if diff := cmp.Diff(out.Entries, slow.Entries); diff != "" {
			t.Errorf("byte by byte (-at once +by byte):\n%s", diff)
		}
	})
}

// BenchmarkRead is the largest sitemap that the protocol allows.
func BenchmarkRead(b *testing.B) {
	var doc strings.Builder
	g := &generated{n: DefaultMaxURLs, tail: "</urlset>"}
	buf := make([]byte, 4096)
	for n, err := g.Read(buf); err == nil; n, err = g.Read(buf) {
		doc.Write(buf[:n])
	}
	for name, doc := range map[string]string{"plain": doc.String(), "gzip": gzipped(doc.String())} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(g.given)
			for b.Loop() {
				res, err := Read(strings.NewReader(doc), Options{}, func(Entry) bool { return true })
				if err != nil || res.Entries != DefaultMaxURLs {
					b.Fatal(res, err)
				}
			}
		})
	}
}
