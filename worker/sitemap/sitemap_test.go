package sitemap

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/unicode"
)

// outcome is all that Read gives.
type outcome struct {
	Entries []Entry
	Res     Result
	Err     error
}

func read(doc string, o Options) outcome {
	var out outcome
	out.Res, out.Err = Read(strings.NewReader(doc), o, func(e Entry) bool {
		out.Entries = append(out.Entries, e)
		return true
	})
	return out
}

// locs lists the addresses; those of other sitemaps with a mark.
func locs(entries []Entry) []string {
	var s []string
	for _, e := range entries {
		if e.Index {
			e.Loc = "sitemap " + e.Loc
		}
		s = append(s, e.Loc)
	}
	return s
}

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

func utf16(s string, endian unicode.Endianness, bom unicode.BOMPolicy) string {
	s, err := unicode.UTF16(endian, bom).NewEncoder().String(s)
	if err != nil {
		return err.Error()
	}
	return s
}

const (
	decl = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	ns   = ` xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"`
	// plain is the same urlset that the cases serve in many ways.
	plain = decl + "<urlset" + ns + "><url><loc>http://site.test/a</loc></url>" +
		"<url><loc>http://site.test/b</loc></url></urlset>"
)

func urlset(inner string) string { return decl + "<urlset" + ns + ">" + inner + "</urlset>" }

func rss(inner string) string {
	return decl + `<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>T</title>
<link>http://site.test/</link><atom:link rel="self" href="http://site.test/feed"/>
<image><url>http://site.test/logo.png</url><link>http://site.test/logo</link></image>` + inner + "</channel></rss>"
}

func atom(inner string) string {
	return decl + `<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:f</id><link href="http://site.test/"/>` +
		`<updated>2020-01-01T00:00:00Z</updated>` + inner + "</feed>"
}

var ab = []string{"http://site.test/a", "http://site.test/b"}

// TestDocuments is what is read of a whole document without a fault.
func TestDocuments(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		doc  string
		kind Kind
		want []string
	}{
		// Kinds.
		{"urlset", plain, KindURLSet, ab},
		{"empty urlset", urlset(""), KindURLSet, nil},
		{"empty urlset in one tag", "<urlset/>", KindURLSet, nil},
		{
			"index", decl + "<sitemapindex" + ns + "><sitemap><loc>http://site.test/1.xml</loc>" +
				"<lastmod>2024-01-01</lastmod></sitemap><sitemap><loc>/2.xml</loc></sitemap></sitemapindex>",
			KindIndex,
			[]string{"sitemap http://site.test/1.xml", "sitemap /2.xml"},
		},
		{
			"index with url", "<sitemapindex><url><loc>http://site.test/1.xml</loc></url></sitemapindex>",
			KindIndex,
			[]string{"sitemap http://site.test/1.xml"},
		},
		{
			"urlset with sitemap", urlset("<sitemap><loc>http://s/1.xml</loc></sitemap><url><loc>http://s/a</loc></url>"),
			KindURLSet,
			[]string{"sitemap http://s/1.xml", "http://s/a"},
		},
		{"text", "http://site.test/a\nhttp://site.test/b\n", KindText, ab},
		{"text CRLF, no last end of line", "http://site.test/a\r\nhttp://site.test/b", KindText, ab},
		{"text CR", "http://site.test/a\rhttp://site.test/b\r", KindText, ab},
		{"text BOM", "\ufeffhttp://site.test/a\nhttp://site.test/b", KindText, ab},
		{
			"text blank lines and comments", "# pages\n\n \t\n  http://site.test/a \n#x\n\n\u200bhttp://site.test/b\u00a0\n",
			KindText,
			ab,
		},
		{"text keeps references and case", "HTTPS://s/?a=1&amp;b", KindText, []string{"HTTPS://s/?a=1&amp;b"}},
		{"text UTF-16", utf16("http://site.test/a\nhttp://site.test/b", unicode.LittleEndian, unicode.UseBOM), KindText, ab},
		{
			"rss", rss(`<item><title>x</title><link>http://site.test/a</link><atom:link rel="x" href="http://no/"/></item>
				<item><link><![CDATA[ http://site.test/b ]]></link><guid>http://site.test/?p=2</guid></item>`),
			KindRSS,
			ab,
		},
		{
			"rss guid", rss(`<item><guid>http://site.test/a</guid></item>
				<item><guid isPermaLink="true">http://site.test/b</guid><link/></item>
				<item><guid isPermaLink="false">http://site.test/c</guid></item><item><guid>tag:4711</guid></item>`),
			KindRSS,
			ab,
		},
		{
			"rss first link counts", rss(`<item><source url="x">http://no/</source><link>http://site.test/a</link>
				<link>http://no/</link></item><item><media:content><link>http://no/</link></media:content>
				<link>http://site.test/b</link></item>`),
			KindRSS,
			ab,
		},
		{
			"rss with HTML that is not escaped", rss(`<item><description><p>x<br><a href="y">z</description>
				<link>http://site.test/a</link></item><item><link>http://site.test/b</link></item>`),
			KindRSS,
			ab,
		},
		{
			"rss 1.0", `<rdf:RDF xmlns:rdf="x" xmlns="y"><channel><link>http://no/</link></channel>
				<item><link>http://site.test/a</link></item><item><link>http://site.test/b</link></item></rdf:RDF>`,
			KindRSS,
			ab,
		},
		{
			"atom", atom(`<entry><link rel="edit" href="http://no/"/><link rel="alternate" href="http://site.test/a"/>
				<link rel="alternate" hreflang="de" href="http://no/"/></entry><entry><id>http://no/</id>
				<source><link href="http://no/"/></source><link href='http://site.test/b'></link></entry>`),
			KindAtom,
			ab,
		},
		{
			"atom with a prefix", `<a:feed xmlns:a="x"><a:entry><link href="http://no/"/>
				<a:link href = "http://site.test/?a=1&amp;b=2" a:href="x" /></a:entry></a:feed>`,
			KindAtom,
			// The element without a prefix is not Atom's.
			[]string{"http://site.test/?a=1&b=2"},
		},
		{"atom relative", atom(`<entry><link href=/a></link></entry>`), KindAtom, []string{"/a"}},

		// SM-02: one urlset, its bytes in each way that servers come up with.
		{"SM-02 a, b gzip", gzipped(plain), KindURLSet, ab},
		{"SM-02 c, e plain", plain, KindURLSet, ab},
		{"SM-02 d gzip twice", gzipped(gzipped(plain)), KindURLSet, ab},
		{"gzip of two members and padding", gzipped(plain[:90]) + gzipped(plain[90:]) + "\x00\x00\n", KindURLSet, ab},
		{"gzip text, short padding", gzipped(strings.Join(ab, "\n")) + "\x00\n", KindText, ab},
		{"gzip text, long padding", gzipped(strings.Join(ab, "\n")) + strings.Repeat("\x00", 99), KindText, ab},
		{"gzip text", gzipped("http://site.test/a\nhttp://site.test/b"), KindText, ab},
		{"gzip UTF-16", gzipped(utf16(plain, unicode.BigEndian, unicode.UseBOM)), KindURLSet, ab},

		// SM-07: names, not name spaces.
		{"SM-07 old", strings.Replace(plain, ns, ` xmlns="http://www.google.com/schemas/sitemap/0.84"`, 1), KindURLSet, ab},
		{"SM-07 https", strings.Replace(plain, "http://www.s", "https://www.s", 1), KindURLSet, ab},
		{"SM-07 none", strings.Replace(plain, ns, "", 1), KindURLSet, ab},
		{
			"SM-07 prefix", `<sm:urlset xmlns:sm="x"><sm:url><sm:loc>http://site.test/a</sm:loc></sm:url>
				<sm:url><sm:loc>http://site.test/b</sm:loc></sm:url></sm:urlset>`,
			KindURLSet,
			ab,
		},
		{
			"SM-07 prefix of the root", `<sm:urlset><url><sm:loc>http://site.test/a</sm:loc></url>
				<sm:url><sm:loc>http://site.test/b</sm:loc></sm:url></sm:urlset>`,
			KindURLSet,
			ab,
		},
		{
			"SM-07 alternates", urlset(`<url><xhtml:link rel="alternate" hreflang="de" href="http://no/"/>
				<loc>http://site.test/a</loc></url><url><loc>http://site.test/b</loc></url>`),
			KindURLSet,
			ab,
		},
		{
			"extensions", urlset(`<url><image:image><image:loc>http://no/1.png</image:loc></image:image>
				<image:loc>http://no/2.png</image:loc><loc>http://site.test/a</loc>
				<image xmlns="y"><loc>http://no/3.png</loc></image>
				<video:video><video:content_loc>http://no/4</video:content_loc><url><loc>http://no/5</loc></url></video:video>
				</url><url><news:news><news:title>x</news:title></news:news><loc>http://site.test/b</loc></url>`),
			KindURLSet,
			ab,
		},
		{"upper case", strings.ToUpper(urlset("<url><loc>/x</loc></url>")), KindURLSet, []string{"/X"}},
		{"lower-case end", "<URLSET><Url><LOC>/x</loc></url></urlset>", KindURLSet, []string{"/x"}},

		// SM-09: what is around an address and in it.
		{
			"SM-09", urlset("<url><loc>\n  <![CDATA[ http://site.test/a?x=1&y=2 ]]>\n</loc></url>" +
				"<url><loc> http://site.test/b </loc></url><url><loc>http://site.test/c?x=1&amp;y=2</loc></url>"),
			KindURLSet,
			[]string{"http://site.test/a?x=1&y=2", "http://site.test/b", "http://site.test/c?x=1&y=2"},
		},
		{
			"ampersands", urlset("<url><loc>/?a=1&b=2&copy=3&lt=4&amp;amp;=5&nbsp;&</loc></url>"),
			KindURLSet,
			[]string{"/?a=1&b=2&copy=3&lt=4&amp;=5&nbsp;&"},
		},
		{
			"references", urlset("<url><loc>/&lt;&gt;&quot;&apos;" +
				"&#38;&#x26;&#X4e2d;&#233;&AMP;&#0;&#xD800;&#x110000;&#;</loc></url>"),
			KindURLSet,
			[]string{`/<>"'&&中é&&#0;&#xD800;&#x110000;&#;`},
		},
		{
			"CDATA holds no references", urlset("<url><loc>/&amp;<![CDATA[&amp;]]]>&amp;<![CDATA[]]></loc></url>"),
			KindURLSet,
			[]string{"/&&amp;]&"},
		},
		{"comment in an address", urlset("<url><loc>/a<!-- > --->b<?x > ?>c</loc></url>"), KindURLSet, []string{"/abc"}},
		{
			"wrapped address", urlset("<url><loc>\n\thttp://site.test/\r\n\t\tvery/long\n</loc></url>"),
			KindURLSet,
			[]string{"http://site.test/very/long"},
		},
		{"blank in an address", urlset("<url><loc>/a b</loc></url>"), KindURLSet, []string{"/a b"}},
		{"less-than in an address", urlset("<url><loc>/a<5</loc></url>"), KindURLSet, []string{"/a<5"}},
		{"attributes", urlset("<url a='>' b=\"</url>\"><loc x>/a</loc></url >"), KindURLSet, []string{"/a"}},

		// Order and nesting.
		{
			"odd order", urlset("<lastmod>2024-01-01</lastmod><url><lastmod/><x><y/></x><loc>/a</loc></url>"),
			KindURLSet,
			[]string{"/a"},
		},
		{"nothing closed", "<urlset><url><loc>/a<lastmod>2024<url><loc>/b</urlset>", KindURLSet, []string{"/a", "/b"}},
		{"entries in entries", urlset("<url><loc>/a</loc><url><loc>/b</loc></url></url>"), KindURLSet, []string{"/a", "/b"}},
		{"two addresses", urlset("<url><loc>/a</loc><loc>/b</loc></url>"), KindURLSet, []string{"/a", "/b"}},
		{
			"two addresses of sitemaps", urlset("<sitemap><loc>/a</loc><loc>/b</loc></sitemap>"),
			KindURLSet,
			[]string{"sitemap /a", "sitemap /b"},
		},
		{
			"no entries around in an index", "<sitemapindex><loc>/a</loc><loc>/b</loc></sitemapindex>",
			KindIndex,
			[]string{"sitemap /a", "sitemap /b"},
		},
		{"no entries around", urlset("<loc>/a</loc><url><loc>/b</loc></url>"), KindURLSet, []string{"/a", "/b"}},
		{"stray end tags", urlset("</x></url><url></sitemap><loc>/a</loc></x></url>"), KindURLSet, []string{"/a"}},
		{"behind the root", plain + "<urlset><url><loc>/no</loc></url></urlset>", KindURLSet, ab},

		// What stands before the root.
		{"junk", "\n\n<br />\n<b>Warning</b>: x in <b>y</b>\n" + plain, KindURLSet, ab},
		{"BOM", "\xef\xbb\xbf" + plain, KindURLSet, ab},
		{"style sheet", strings.Replace(plain, "\n", "<?xml-stylesheet href='<x>'?><!-- <urlset> -->", 1), KindURLSet, ab},
		{
			"document type", `<!DOCTYPE urlset SYSTEM "http://no/>" [<!-- don't > --><!ENTITY x "<url>"> %x;
				<!ENTITY e SYSTEM 'file:///etc/passwd'>]>` + "<urlset><url><loc>/&x;&e;</loc></url></urlset>",
			KindURLSet,
			[]string{"/&x;&e;"},
		},

		// Encodings.
		{"UTF-16 LE", utf16(plain, unicode.LittleEndian, unicode.UseBOM), KindURLSet, ab},
		{"UTF-16 BE", utf16(plain, unicode.BigEndian, unicode.UseBOM), KindURLSet, ab},
		{"UTF-16 LE, no mark", utf16(plain, unicode.LittleEndian, unicode.IgnoreBOM), KindURLSet, ab},
		{"UTF-16 BE, no mark", utf16(plain, unicode.BigEndian, unicode.IgnoreBOM), KindURLSet, ab},
		{"UTF-16 is a lie", strings.Replace(plain, "UTF-8", "UTF-16", 1), KindURLSet, ab},
		{
			"windows-1251", "<?xml version='1.0' encoding='windows-1251'?><urlset><url><loc>/\xef</loc></url></urlset>",
			KindURLSet,
			[]string{"/п"},
		},
		{
			"Shift_JIS, junk before", "\n<?xml encoding=Shift_JIS ?><urlset><url><loc>/\x93\xfa\x96\x7b</loc></url></urlset>",
			KindURLSet,
			[]string{"/日本"},
		},
		{"unknown", strings.Replace(plain, "UTF-8", "klingon", 1), KindURLSet, ab},
		{
			"CHR-08 UTF-8, not declared", "<urlset>" + strings.Repeat("<url><loc>/a</loc></url>", 60) +
				"<url><loc>/café€</loc></url></urlset>",
			KindURLSet,
			append(strings.Fields(strings.Repeat("/a ", 60)), "/café€"),
		},
		{"neither declared nor UTF-8", "<urlset><loc>/caf\xe9\x80</loc></urlset>", KindURLSet, []string{"/café€"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := read(tt.doc, Options{})
			if out.Err != nil || out.Res.Cut != "" || out.Res.Kind != tt.kind || out.Res.Entries != len(tt.want) {
				t.Errorf("%+v, %v; want %q of %d", out.Res, out.Err, tt.kind, len(tt.want))
			}
			if diff := cmp.Diff(tt.want, locs(out.Entries)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// How the bytes come in must not matter.
			var slow []Entry
			_, err := Read(iotest.OneByteReader(strings.NewReader(tt.doc)), Options{}, func(e Entry) bool {
				slow = append(slow, e)
				return true
			})
			if diff := cmp.Diff(out.Entries, slow); err != nil || diff != "" {
				t.Errorf("byte by byte: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestContentTypes is SM-04: neither a name nor a content type is asked for, so
// that one answer to all of them is enough: the bytes.
func TestContentTypes(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{plain, "\ufeff" + plain, strings.TrimPrefix(plain, decl)} {
		if out := read(doc, Options{}); out.Err != nil || !cmp.Equal(ab, locs(out.Entries)) {
			t.Errorf("SM-04: %v, %v", out.Entries, out.Err)
		}
	}
}

// TestFaults is what documents with a fault give: what stood before it, and its kind.
func TestFaults(t *testing.T) {
	t.Parallel()
	a := []string{"/a"}
	const entry = "<url><loc>/a</loc></url>"
	z := gzipped("<urlset>" + entry + strings.Repeat(" ", 9000))
	zt := gzipped("http://s/a\n" + strings.Repeat(" ", 9000))
	// A root that is closed ends the reading before the sum.
	badSum := []byte(gzipped("<urlset>" + entry))
	badSum[len(badSum)-8] ^= 1
	tests := []struct {
		name string
		doc  string
		err  error
		kind Kind
		want []string
	}{
		{"empty", "", ErrNotSitemap, "", nil},
		{"blank", " \n", ErrNotSitemap, "", nil},
		{"SM-02 f error page", "<!DOCTYPE html><html><head><title>404</title></head></html>", ErrNotSitemap, "", nil},
		{
			"page that quotes a sitemap", "<HTML><pre><urlset>" + entry + "</urlset></pre></HTML>",
			ErrNotSitemap,
			"",
			nil,
		},
		{"page without its tags", "<!doctype html><title>404</title><p>Not found", ErrNotSitemap, "", nil},
		{"other XML", decl + "<Error><Code>AccessDenied</Code></Error>", ErrNotSitemap, "", nil},
		{"too much before the root", strings.Repeat("<a>", 101) + urlset(entry), ErrNotSitemap, "", nil},
		{"JSON", `{"urls": ["http://site.test/"]}`, ErrNotSitemap, "", nil},
		{"prose", "See http://site.test/", ErrNotSitemap, "", nil},
		{"an image", "\x89PNG\r\n\x1a\n\x00\x00", ErrNotSitemap, "", nil},
		{"gzip three times", gzipped(gzipped(gzipped(plain))), ErrNotSitemap, "", nil},
		{"gzip of a page", gzipped("<html>"), ErrNotSitemap, "", nil},

		{"no end", "<urlset>" + entry + "<url><loc>/b</loc", ErrTruncated, KindURLSet, a},
		{"cut in an address", "<urlset>" + entry + "<url><loc>/b", ErrTruncated, KindURLSet, a},
		{"cut behind an address", "<urlset><url><loc>/a</loc><lastmod>20", ErrTruncated, KindURLSet, a},
		{"cut in a comment", "<urlset>" + entry + "<!-- --", ErrTruncated, KindURLSet, a},
		{"cut in CDATA", "<urlset>" + entry + "<url><loc><![CDATA[/b]]", ErrTruncated, KindURLSet, a},
		{"cut in a quote", "<urlset>" + entry + "<url x='></urlset>", ErrTruncated, KindURLSet, a},
		{"cut gzip", z[:len(z)-12], ErrTruncated, KindURLSet, a},
		{"cut gzip header", "\x1f\x8b\x08\x00", ErrTruncated, "", nil},
		{"cut gzip of text", zt[:len(zt)-12], ErrTruncated, KindText, []string{"http://s/a"}},

		{"depth", "<urlset>" + entry + strings.Repeat("<x>", 256), ErrMalformed, KindURLSet, a},
		{"gzip header", "\x1f\x8b\x08\xff\xff\xff\xff\xff\xff\xff" + strings.Repeat("\xff", 99), ErrTruncated, "", nil},
		{"gzip data", z[:10] + "\xff\xff\xff\xff", ErrMalformed, "", nil},
		{"gzip sum", string(badSum), ErrMalformed, KindURLSet, a},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := read(tt.doc, Options{})
			if !errors.Is(out.Err, tt.err) || out.Res.Kind != tt.kind || out.Res.Cut != "" {
				t.Errorf("%+v, %v; want %q, %v", out.Res, out.Err, tt.kind, tt.err)
			}
			if diff := cmp.Diff(tt.want, locs(out.Entries)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSkipped: what is left out is counted.
func TestSkipped(t *testing.T) {
	t.Parallel()
	long := "http://s/" + strings.Repeat("x", maxValueBytes)
	for name, doc := range map[string]string{
		"xml": urlset("<url/><url><loc> </loc></url><url><lastmod>2024</lastmod></url><url><loc>" + long +
			"</loc></url><url><loc><![CDATA[" + long + "]]></loc></url><url><loc>http://s/a</loc></url>"),
		// Eight bits become two or three bytes.
		"expands": urlset("<url/><url/><url/><url/><url><loc>" + strings.Repeat("\x80", maxValueBytes-9) +
			"</loc></url><url><loc>http://s/a</loc></url>"),
		"text": "http://s/a\nfoo\n/a\nftp://s/a\nhttp://\n" + long + "\n",
		"rss":  rss("<item/><item/><item/><item/><item><link>" + long + "</link></item><item><link>http://s/a</link></item>"),
		"atom": atom("<entry/><entry/><entry/><entry/><entry><link href='" + long +
			"'/></entry><entry><link href='http://s/a'/></entry>"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := read(doc, Options{})
			if out.Err != nil || out.Res.Skipped != 5 || !cmp.Equal([]string{"http://s/a"}, locs(out.Entries)) {
				t.Errorf("%+v, %v, %d entries; want one, and five skipped", out.Res, out.Err, len(out.Entries))
			}
		})
	}
}

// TestLargeParts: what is not an address may be as large as it likes.
func TestLargeParts(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("don't > ", bufferBytes)
	for name, part := range map[string]string{
		"text":        large,
		"comment":     "<!--" + large + "-->",
		"cdata":       "<![CDATA[" + large + "]]>",
		"instruction": "<?x " + large + "?>",
		"declaration": `<!x "` + large + `">`,
		"tag":         `<x y="` + large + `"/>`,
		"name":        "<" + strings.Repeat("x", len(large)) + "/>",
		"element":     "<x>" + large + "</x>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := strings.ReplaceAll("%<urlset>%<url>%<loc>/a</loc></url>%<url><loc>/b</loc></url></urlset>", "%", part)
			out := read(doc, Options{})
			if out.Err != nil || !cmp.Equal([]string{"/a", "/b"}, locs(out.Entries)) {
				t.Errorf("%v, %+v, %v", locs(out.Entries), out.Res, out.Err)
			}
		})
	}
}

// TestLastMod: an entry has the time that its document gives it.
func TestLastMod(t *testing.T) {
	t.Parallel()
	day := time.Date(2024, 5, 6, 0, 0, 0, 0, time.UTC)
	for name, doc := range map[string]string{
		"before":    urlset("<url><lastmod> 2024-05-06\n</lastmod><loc>/a</loc></url><url><loc>/b</loc></url>"),
		"after":     urlset("<url><loc>/a</loc><lastmod>2024-05-06T02:00:00+02:00</lastmod></url><url><loc>/b</loc></url>"),
		"unread":    urlset("<loc>/a</loc><lastmod>2024-05-06</lastmod><url><loc>/b</loc><lastmod>now</lastmod></url>"),
		"unwrapped": urlset("<loc>/a</loc><lastmod>2024-05-06</lastmod><loc>/b</loc>"),
		"rss": rss("<item><link>/a</link><pubDate>Mon, 06 May 2024 00:00:00 GMT</pubDate></item>" +
			"<item><link>/b</link><media:x><pubDate>Mon, 06 May 2024 00:00:00 GMT</pubDate></media:x></item>"),
		"atom": atom("<entry><published>2023-01-01</published><updated>2024-05-06</updated><link href='/a'/></entry>" +
			"<entry><link href='/b'/></entry>"),
		"atom published": atom("<entry><link href='/a'/><published>2024-05-06</published></entry>" +
			"<entry><link href='/b'/></entry>"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := read(doc, Options{})
			want := []Entry{{Loc: "/a", LastMod: day}, {Loc: "/b"}}
			if diff := cmp.Diff(want, out.Entries); out.Err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", out.Err, diff)
			}
		})
	}
}
