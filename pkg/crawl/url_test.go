package crawl

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
	"pgregory.net/rapid"
)

func mustParse(t testing.TB, s string) URL {
	t.Helper()
	u, err := ParseURL(s)
	if err != nil {
		t.Fatalf("ParseURL(%q): %v", s, err)
	}
	return u
}

// TestResolve pins what links and Location headers mean. Names hold the ids of
// the handed cases.
func TestResolve(t *testing.T) {
	t.Parallel()
	const site = "http://site.test/d/p"
	for _, tt := range []struct {
		name, base, href, want string
		refused                Reason
	}{
		{name: "URL-07 mailto", href: "mailto:a@site.test", refused: RefusedScheme},
		{name: "URL-07 tel", href: "tel:+100", refused: RefusedScheme},
		{name: "URL-07 javascript", href: "javascript:void(0)", refused: RefusedScheme},
		{name: "URL-07 JavaScript", href: "JavaScript:alert(1)", refused: RefusedScheme},
		{name: "URL-07 javascript with a newline", href: " java\nscript:alert(1)", refused: RefusedScheme},
		{name: "URL-07 data", href: `data:text/html,<a href=/d>x</a>`, refused: RefusedScheme},
		{name: "URL-07 long data", href: "data:," + strings.Repeat("x", 1<<20), refused: RefusedScheme},
		{name: "URL-07 blob", href: "blob:http://site.test/1", refused: RefusedScheme},
		{name: "URL-07 ftp", href: "ftp://site.test/f", refused: RefusedScheme},
		{name: "URL-07 file", href: "file:///etc/passwd", refused: RefusedScheme},
		{name: "URL-07 about", href: "about:blank", refused: RefusedScheme},
		{name: "URL-07 empty", href: "", want: site},
		{name: "URL-07 fragment", href: "#", want: site},
		{name: "URL-07 relative with at", href: "a@site.test", want: "http://site.test/d/a@site.test"},

		{name: "URL-08 user", href: "http://me@site.test/u", want: "http://site.test/u"},
		{name: "URL-08 password", href: "http://me:pw@site.test/u", want: "http://site.test/u"},
		{name: "URL-08 host as user", href: "http://site.test@other.test/", want: "http://other.test/"},
		{name: "URL-08 at twice", href: "http://site.test@x@other.test/", want: "http://other.test/"},

		{name: "URL-09 lower case", href: "http://bücher.test/a", want: "http://xn--bcher-kva.test/a"},
		{name: "URL-09 upper case", href: "http://BÜCHER.test/a", want: "http://xn--bcher-kva.test/a"},
		{name: "URL-09 punycode", href: "http://xn--bcher-kva.test/a", want: "http://xn--bcher-kva.test/a"},
		{name: "URL-09 underscore", href: "http://a_b.test/u", want: "http://a_b.test/u"},
		{name: "URL-09 hyphens", href: "http://hg--69.test/h", want: "http://hg--69.test/h"},
		{name: "URL-09 emoji", href: "http://i❤.test/", want: "http://xn--i-7iq.test/"},

		{name: "URL-12 bare host", href: "http://site.test", want: "http://site.test/"},
		{name: "URL-12 default port", href: "http://SITE.test:80/", want: "http://site.test/"},
		{name: "URL-12 dot", href: "/./", want: "http://site.test/"},
		{name: "URL-12 no slash added", href: "/dir", want: "http://site.test/dir"},
		{name: "URL-12 no slash taken", href: "/dir/", want: "http://site.test/dir/"},

		{name: "URL-13 too long", href: "/long?" + strings.Repeat("a", 70000), refused: RefusedTooLong},
		{name: "URL-13 too long once encoded", href: "/" + strings.Repeat("ж", 2000), refused: RefusedTooLong},
		{
			name: "URL-13 longest", href: "http://site.test/" + strings.Repeat("a", MaxURLBytes-17),
			want: "http://site.test/" + strings.Repeat("a", MaxURLBytes-17),
		},
		{
			name: "URL-13 one more", href: "http://site.test/" + strings.Repeat("a", MaxURLBytes-16),
			refused: RefusedTooLong,
		},
		{name: "URL-13 fragment does not count", href: "/a#" + strings.Repeat("a", 70000), want: "http://site.test/a"},

		{name: "URL-15 open bracket", href: "http://[::1", refused: RefusedInvalid},
		{name: "URL-15 no host", href: "http://", refused: RefusedInvalid},
		{name: "URL-15 space", href: "http://exa mple.test/", refused: RefusedInvalid},
		{name: "URL-15 empty label", href: "http://a..b/", refused: RefusedInvalid},
		{name: "URL-15 first label empty", href: "http://.b/", refused: RefusedInvalid},
		{name: "URL-15 only dot", href: "http://./", refused: RefusedInvalid},
		{name: "URL-15 port range", href: "http://site.test:99999/p", refused: RefusedInvalid},
		{name: "URL-15 port zero", href: "http://site.test:0/p", refused: RefusedInvalid},
		{name: "URL-15 label", href: "http://" + strings.Repeat("a", 64) + ".test/", refused: RefusedInvalid},
		{name: "URL-15 name", href: "http://" + strings.Repeat("a.", 127) + "test/", refused: RefusedInvalid},
		{name: "URL-15 host that does not read back", href: "http://≠.test/", refused: RefusedInvalid},
		{name: "URL-15 good", href: "/good", want: "http://site.test/good"},

		{name: "RED-07 tab", href: "/ta\tb", want: "http://site.test/tab"},
		{name: "RED-07 three slashes", href: "///site.test/three", want: "http://site.test/three"},
		{name: "RED-07 UTF-8", href: "/caf\xc3\xa9 sp", want: "http://site.test/caf%C3%A9%20sp"},
		{name: "RED-07 Latin-1", href: "/caf\xe9", want: "http://site.test/caf%E9"},
		{name: "RED-07 Latin-1 query", href: "/%2e/caf\xe9?\xff", want: "http://site.test/caf%E9?%FF"},
		{name: "RED-07 braces", href: "/x/{id}", want: "http://site.test/x/%7Bid%7D"},
		{name: "RED-07 backslashes", href: `\\other.test\x`, want: "http://other.test/x"},
		{name: "RED-07 relative", base: "http://site.test/", href: "rel?x=1", want: "http://site.test/rel?x=1"},
		{name: "RED-07 scheme-relative", href: "//site.test/pr", want: "http://site.test/pr"},

		{name: "BASE-04 relative", base: "http://cdn.other.test/", href: "rel", want: "http://cdn.other.test/rel"},
		{name: "BASE-04 absolute path", base: "http://cdn.other.test/", href: "/abs", want: "http://cdn.other.test/abs"},
		{name: "BASE-04 full", base: "http://cdn.other.test/", href: "http://site.test/full", want: "http://site.test/full"},
		{name: "BASE-04 fragment", base: "http://cdn.other.test/", href: "#x", want: "http://cdn.other.test/"},
		{name: "BASE-04 empty", base: "http://cdn.other.test/", href: "", want: "http://cdn.other.test/"},

		{name: "query of the base stays", base: "http://h.test/a?q", href: "#x", want: "http://h.test/a?q"},
		{name: "empty query is a query", href: "?", want: "http://site.test/d/p?"},
		{name: "space before the fragment is inside", href: "a #x", want: "http://site.test/d/a%20"},
		{name: "the same by the slow path", href: "%2e/a #x", want: "http://site.test/d/a%20"},
		{name: "dots beyond the root", href: "../../../a/../b/./c/..", want: "http://site.test/b/"},
		{name: "dots in disguise", href: "/a/.%2E/%2e/b", want: "http://site.test/b"},
		{name: "empty segments", href: "/a//b///../c", want: "http://site.test/a//b//c"},
		{name: "same scheme without slashes", href: "http:x", want: "http://site.test/d/x"},
		{name: "other scheme without slashes", href: "https:x.test", want: "https://x.test/"},
		{name: "IPv4 spellings", href: "http://0x7f.1/", want: "http://127.0.0.1/"},
		{name: "IPv4 as a number", href: "//2130706433:8080", want: "http://127.0.0.1:8080/"},
		{name: "IPv4 full width", href: "http://１２７.0.0.1/", want: "http://127.0.0.1/"},
		{name: "IPv6", href: "http://[::FFFF:1.2.3.4]:443", want: "http://[::ffff:102:304]:443/"},
		{name: "final dot of the host", href: "HTTPS://Site.TEST.:443/x", want: "https://site.test./x"},
		{name: "encodings stay as linked", href: "/%7e%aa%zz%", want: "http://site.test/%7e%aa%zz%"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.base == "" {
				tt.base = site
			}
			u, err := mustParse(t, tt.base).Resolve(tt.href)
			if got := RefusedReasonOf(err); got != tt.refused {
				t.Fatalf("refused as %q (%v), want %q", got, err, tt.refused)
			}
			if got := u.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if err != nil && CodeOf(err) != CodeInvalidURL {
				t.Errorf("code %q, want %q", CodeOf(err), CodeInvalidURL)
			}
		})
	}
}

func TestParseURLNeedsAnAbsoluteURL(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "#", "/a", "//h.test/", "site.test/a", "?q"} {
		if _, err := ParseURL(s); RefusedReasonOf(err) != RefusedInvalid {
			t.Errorf("ParseURL(%q): %v, want a refusal as invalid", s, err)
		}
	}
	if u, err := (URL{}).Resolve("https://h.test"); err != nil || u.String() != "https://h.test/" {
		t.Errorf("an absolute href against no base: %q, %v", u.String(), err)
	}
	if got := RefusedReasonOf(errors.New("other")); got != RefusedInvalid {
		t.Errorf("reason of another error: %q", got)
	}
}

// URL-08: a password reaches neither the person nor the log.
func TestFaultsNeverRepeatAPassword(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"http://me:pw@", "http://me:pw@a b/", "http://me:pw@h:99999/", "http://me:pw@[::1/", "me:pw@site.test",
		"http://me:pw@h.test/" + strings.Repeat("a", MaxURLBytes), "http://me:pw@1.2.3.4.5/", "http://me:pw@a..b/",
	} {
		_, err := ParseURL(s)
		if err == nil || strings.Contains(err.Error(), "pw") {
			t.Errorf("ParseURL(%.40q): %v", s, err)
		}
	}
}

func TestURLParts(t *testing.T) {
	t.Parallel()
	type parts struct {
		Scheme, Host, Hostname, Port, Path, Query, RequestURI, Origin, PolitenessHost string
	}
	for s, want := range map[string]parts{
		"http://a.test": {"http", "a.test", "a.test", "80", "/", "", "/", "http://a.test", "a.test"},
		"https://a.test./x?": {
			"https", "a.test.", "a.test.", "443", "/x", "", "/x?", "https://a.test.", "a.test",
		},
		"https://a.test.:8443/x?q=/#f": {
			"https", "a.test.:8443", "a.test.", "8443", "/x", "q=/", "/x?q=/", "https://a.test.:8443", "a.test:8443",
		},
		"https://a.test:80/": {
			"https", "a.test:80", "a.test", "80", "/", "", "/", "https://a.test:80", "a.test:80",
		},
		"http://[::1]:81/": {"http", "[::1]:81", "::1", "81", "/", "", "/", "http://[::1]:81", "[::1]:81"},
	} {
		u := mustParse(t, s)
		got := parts{
			u.Scheme(), u.Host(), u.Hostname(), u.Port(), u.Path(), u.Query(), u.RequestURI(), u.Origin(),
			u.PolitenessHost(),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", s, diff)
		}
		if u.IsZero() {
			t.Errorf("%s is zero", s)
		}
	}
	var zero URL
	got := parts{
		zero.Scheme(), zero.Host(), zero.Hostname(), zero.Port(), zero.Path(), zero.Query(), zero.RequestURI(),
		zero.Origin(), zero.PolitenessHost(),
	}
	if diff := cmp.Diff(parts{}, got); diff != "" || !zero.IsZero() {
		t.Errorf("the zero URL: (-want +got)\n%s", diff)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, a, b string
		same       bool
	}{
		{"URL-12 bare host", "http://site.test", "http://SITE.test:80/./", true},
		{"URL-12 trailing slash", "http://site.test/dir", "http://site.test/dir/", false},
		{"URL-08 userinfo", "http://me:pw@site.test/u", "http://site.test/u", true},
		{"URL-09 IDN", "http://BÜCHER.test/a", "http://xn--bcher-kva.test/a", true},
		{"URL-13 last byte", "http://h.test/?" + strings.Repeat("a", 8000), "http://h.test/?" + strings.Repeat("a", 7999) + "b", false},
		{"unreserved", "http://h.test/%7euser%2D%41", "http://h.test/~user-A", true},
		{"unreserved in the query", "http://h.test/?%61=%5f", "http://h.test/?a=_", true},
		{"case of an encoding", "http://h.test/%c3%a9", "http://h.test/é", true},
		{"reserved", "http://h.test/a%2Fb", "http://h.test/a/b", false},
		{"decoded once", "http://h.test/%2541", "http://h.test/A", false},
		{"not an encoding", "http://h.test/%4", "http://h.test/%34", false},
		{"empty query", "http://h.test/a?", "http://h.test/a", true},
		{"query of a question mark", "http://h.test/a??", "http://h.test/a?", false},
		{"final dot", "http://h.test.:81/a", "http://h.test:81/a", true},
		{"scheme", "http://h.test/", "https://h.test/", false},
		{"www", "http://www.h.test/", "http://h.test/", false},
		{"order of the query", "http://h.test/?a&b", "http://h.test/?b&a", false},
		{"fragment", "http://h.test/#a", "http://h.test/#b", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, b := mustParse(t, tt.a), mustParse(t, tt.b)
			if got := a.Key() == b.Key(); got != tt.same {
				t.Errorf("same key: %v, want %v (normal forms %s and %s)",
					got, tt.same, a.appendNormal(nil), b.appendNormal(nil))
			}
		})
	}
}

// URL-14, CHR-01: the query of a legacy page is in its charset, the path is not.
func TestResolveEncoded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, href, want string
		enc              encoding.Encoding
	}{
		{"URL-14 query", "/s?q=тест", "/s?q=%F2%E5%F1%F2", charmap.Windows1251},
		{"URL-14 path", "/путь", "/%D0%BF%D1%83%D1%82%D1%8C", charmap.Windows1251},
		{"URL-14 both", "/ж?ж#ж", "/%D0%B6?%E6", charmap.Windows1251},
		{"URL-14 lacking", "?ж€中ж", "/d/p?%E6%88%26%2320013%3B%E6", charmap.Windows1251},
		{"URL-14 lacking at the end", "?中", "/d/p?%26%2320013%3B", charmap.Windows1252},
		{"URL-14 ASCII", "?a=%E6&b c", "/d/p?a=%E6&b%20c", charmap.Windows1251},
		{"URL-14 multi-byte", "?中文", "/d/p?%D6%D0%CE%C4", simplifiedchinese.GBK},
		{"URL-14 stateful", "?あa", "/d/p?%1B$B$%22%1B(Ba", japanese.ISO2022JP},
		{"URL-14 ASCII inside", "?表", "/d/p?%95\\", japanese.ShiftJIS},
		{"URL-14 not UTF-8", "?ж\xffж", "/d/p?%E6%26%2365533%3B%E6", charmap.Windows1251},
		{"UTF-8", "?ж", "/d/p?%D0%B6", unicode.UTF8},
		{"UTF-16 means UTF-8", "?ж", "/d/p?%D0%B6", unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)},
		{"replacement means UTF-8", "?ж", "/d/p?%D0%B6", encoding.Replacement},
		{"none", "?ж", "/d/p?%D0%B6", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, err := mustParse(t, "http://h.test/d/p").ResolveEncoded(tt.href, tt.enc)
			if err != nil {
				t.Fatal(err)
			}
			if got := u.RequestURI(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// oracle says what the library and the documented rules beyond the standard make
// of a link, without any code of the parser.
func oracle(base URL, href string) (string, Reason) {
	trimmed := strings.TrimFunc(href, func(r rune) bool { return r <= ' ' })
	trimmed = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(trimmed)
	head, _, _ := strings.Cut(trimmed, "#")
	p, err := whatwg.ParseRef(base.String(), href)
	switch {
	case err == nil && p.Scheme() != "http" && p.Scheme() != "https":
		return "", RefusedScheme
	case len(head) > MaxURLBytes:
		return "", RefusedTooLong
	case err != nil:
		return "", RefusedInvalid
	case unreachable(p.Hostname(), p.Port()) != "", !readsBack(p.Hostname()):
		return "", RefusedInvalid
	}
	p.SetUsername("")
	p.SetPassword("")
	s := p.Href(true)
	if len(s) > MaxURLBytes {
		return "", RefusedTooLong
	}
	return s, ""
}

func readsBack(host string) bool {
	p, err := whatwg.Parse("http://" + host)
	return err == nil && p.Hostname() == host
}

func checkAgreement(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, base URL, href string,
) {
	t.Helper()
	u, err := base.Resolve(href)
	want, refused := oracle(base, href)
	if err != nil {
		// A scheme that is not fetched is refused before the rest is looked at.
		if got := RefusedReasonOf(err); got != refused && (got != RefusedScheme || refused == "") {
			t.Fatalf("%q on %q: refused as %q, the library says %q (%q)", href, base.String(), got, want, refused)
		}
		return
	}
	if u.String() != want {
		t.Fatalf("%q on %q:\n got %q\nwant %q (%q)", href, base.String(), u.String(), want, refused)
	}
	checkURL(t, u)
}

// checkURL holds what is true of every URL.
func checkURL(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, u URL,
) {
	t.Helper()
	again, err := ParseURL(u.String())
	if err != nil || again != u {
		t.Fatalf("%q parses again as %q (%v), with other offsets if they look alike", u.String(), again.String(), err)
	}
	if got := u.Scheme() + "://" + u.Host() + u.RequestURI(); got != u.String() {
		t.Fatalf("the parts make %q of %q", got, u.String())
	}
	if !strings.HasPrefix(u.Path(), "/") || !isASCII(u.String()) || len(u.String()) > MaxURLBytes {
		t.Fatalf("%q is no canonical URL", u.String())
	}
	normal := u.normal()
	if again, err := ParseURL(normal.String()); err != nil || again != normal {
		t.Fatalf("the normal form %q of %q parses as %q (%v)", normal.String(), u.String(), again.String(), err)
	}
	if normal.Key() != u.Key() || !normal.isNormal() && normal.normal() != normal {
		t.Fatalf("the normal form of %q is not stable: %q", u.String(), normal.String())
	}
	if normal.PolitenessHost() != u.PolitenessHost() {
		t.Fatalf("%q and its normal form are of different hosts", u.String())
	}
}

var nastyBases = []string{
	"http://site.test/d/p", "https://site.test/", "http://127.0.0.1:8080/a/b/?q", "http://[::1]:81/a//b",
	"https://xn--bcher-kva.test./x?", "http://a.b-c_d.test/%2F/%7e;p=1/?a=b&c", "http://h/",
}

// nastyPieces are what links are made of, and what breaks parsers.
var nastyPieces = []string{
	"http:", "https:", "HTTP://", "https://", "http:/", "//", "/", "///", "\\", "\\\\", "mailto:", "x:",
	".", "..", "...", "%2e", "%2E", ".%2e", "%2", "%", "%zz", "%41", "%c3%a9", "%00", "%252e",
	"?", "??", "#", "&", "=", ";", ":", "@", "a@", "u:p@", ":80", ":443", ":8080", ":0", ":080", ":65535", ":65536", ":x", ":",
	"site.test", "SITE.Test", "site.test.", "h", "a..b", "xn--bcher-kva", "xn--a", "XN--", "bücher.test", "≠", "a_b", "-a-", "hg--69",
	"127.0.0.1", "127.1", "0x7f.1", "2130706433", "1.2.3.256", "01.2.3.4", "1.2.3.4.", "0x", "x.1", "[::1]", "[::1", "[1:2]", "１２７.0.0.1",
	"a", "b/c", "index.html", "é", "日本", "❤", "\u00ad", "\ufffd", "\xff", "\xc3",
	" ", "\t", "\n", "\r", "\x00", "\x1f", "\x7f", "\"", "'", "<", ">", "`", "|", "{", "}", "^", "[", "]", "~", "!", "$", "*", ",", "+", "(",
}

// TestParserAgrees holds the parser to the library over links made of nasty
// pieces.
func TestParserAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base, err := ParseURL(rapid.SampledFrom(nastyBases).Draw(t, "base"))
		if err != nil {
			t.Fatalf("base: %v", err)
		}
		pieces := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(nastyPieces), rapid.SampledFrom(nastyPieces), rapid.StringN(0, 3, 9)), 0, 8)
		href := strings.Join(pieces.Draw(t, "href"), "")
		checkAgreement(t, base, escapeInvalid(href))
	})
}

// escapeInvalid percent-encodes the bytes of s that are not UTF-8: the library
// would replace them, where this package keeps them (see Resolve).
func escapeInvalid(s string) string {
	b := make([]byte, 0, len(s))
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			b = appendPercent(b, s[0])
		} else {
			b = append(b, s[:n]...)
		}
		s = s[n:]
	}
	return string(b)
}

func FuzzParserAgrees(f *testing.F) {
	for i, p := range nastyPieces {
		f.Add(i%len(nastyBases), p+nastyPieces[(i*7+3)%len(nastyPieces)]+nastyPieces[(i*31+5)%len(nastyPieces)])
	}
	f.Fuzz(func(t *testing.T, base int, href string) {
		b := mustParse(t, nastyBases[uint(base)%uint(len(nastyBases))])
		checkAgreement(t, b, escapeInvalid(href))
		// Bytes that are not UTF-8 never break the form of the result.
		if u, err := b.Resolve(href); err == nil {
			checkURL(t, u)
		}
	})
}

func FuzzParseURL(f *testing.F) {
	for _, p := range nastyPieces {
		f.Add("http://" + p)
		f.Add(p + "//h.test/" + p)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseURL(s)
		if err != nil {
			if CodeOf(err) != CodeInvalidURL || RefusedReasonOf(err) == "" || !u.IsZero() {
				t.Fatalf("ParseURL(%q) = %q, %v", s, u.String(), err)
			}
			return
		}
		checkURL(t, u)
	})
}

func TestResolveAllocations(t *testing.T) {
	base := mustParse(t, "https://docs.site.test/a/b/page.html?x=1")
	var sink Key
	if n := testing.AllocsPerRun(100, func() {
		u, err := base.Resolve("../guide/install.html?lang=en#linux")
		if err != nil {
			t.Fatal(err)
		}
		sink = u.Key()
	}); n > 2 {
		t.Errorf("%v allocations a link with its key, want at most 2", n)
	}
	_ = sink
}

var benchHrefs = []struct{ name, href string }{
	{"Relative", "../guide/install-on-linux.html?lang=en#step-2"},
	{"Path", "/docs/guide/install-on-linux.html"},
	{"SameSite", "https://docs.site.test/docs/guide/install-on-linux.html"},
	{"OtherSite", "https://www.example.org/docs/guide/install-on-linux.html"},
	{"NonASCII", "/документация/установка"},
	{"IDN", "https://bücher.example/документация"},
}

func BenchmarkResolve(b *testing.B) {
	base := mustParse(b, "https://docs.site.test/a/b/page.html?x=1")
	for _, h := range benchHrefs {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := base.Resolve(h.href); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkResolveWithKey(b *testing.B) {
	base := mustParse(b, "https://docs.site.test/a/b/page.html?x=1")
	b.ReportAllocs()
	for b.Loop() {
		u, err := base.Resolve(benchHrefs[0].href)
		if err != nil {
			b.Fatal(err)
		}
		_ = u.Key()
	}
}

// BenchmarkResolveLibrary is what the parser stands for, on its own terms: with
// the base parsed once.
func BenchmarkResolveLibrary(b *testing.B) {
	base, err := whatwg.Parse("https://docs.site.test/a/b/page.html?x=1")
	if err != nil {
		b.Fatal(err)
	}
	for _, h := range benchHrefs {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := base.Parse(h.href)
				if err != nil {
					b.Fatal(err)
				}
				_ = p.Href(true)
			}
		})
	}
}
