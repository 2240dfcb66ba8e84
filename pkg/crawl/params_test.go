package crawl

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	const md5 = "d41d8cd98f00b204e9800998ecf8427e"
	tracking := []string{TrackingWord}
	for _, tt := range []struct {
		name     string
		drop     []string
		sort     bool
		in, want string // path and query; want is in when it is empty
	}{
		{name: "nothing asked for", in: "/p?utm_source=a&b=1&a=2&&"},
		{name: "empty query", drop: tracking, sort: true, in: "/p?"},

		{name: "by name", drop: []string{"ref"}, in: "/p?a=1&ref=x&b=2", want: "/p?a=1&b=2"},
		{name: "without a value", drop: []string{"ref"}, in: "/p?ref&b", want: "/p?b"},
		{name: "all of it", drop: []string{"ref"}, in: "/p?ref=1", want: "/p"},
		{name: "each time", drop: []string{"ref"}, in: "/p?ref=1&a&ref=2", want: "/p?a"},
		{name: "part of a name", drop: []string{"ref"}, in: "/p?xref=1&refx=1&REF=1"},
		{name: "value", drop: []string{"ref"}, in: "/p?a=ref"},
		{name: "glob", drop: []string{"utm_*"}, in: "/p?utm_source=a&utm=1&utm_=2&x_utm_y=3", want: "/p?utm=1&x_utm_y=3"},
		{name: "glob inside", drop: []string{"a*z"}, in: "/p?a/b/z=1&az&azb", want: "/p?azb"},
		{name: "every parameter", drop: []string{"*"}, in: "/p?a=1&b&=2", want: "/p"},
		{name: "encoded name", drop: []string{"a_b", "f[]", "ж", "x y"}, in: "/p?%61%5fb=1&f[]=2&%D0%B6=3&%d0%b6=4&x%20y=5&z", want: "/p?z"},
		{name: "encoded in the list", drop: []string{"%61"}, in: "/p?a=1&%61=2&b", want: "/p?b"},
		{name: "what stays is as it was", drop: []string{"x"}, in: "/p?x&%7e=%2f&&b=", want: "/p?%7e=%2f&&b="},
		{
			name: "tracking", drop: tracking, want: "/p?id=1&ref=2&source=3&t=4",
			in: "/p?id=1&utm_source=a&utm_medium=b&gclid=c&fbclid=d&ref=2&_ga=e&mc_eid=f&source=3&msclkid=g&t=4&hsCtaTracking=h",
		},

		{name: "sort", sort: true, in: "/p?b=1&a=2&c", want: "/p?a=2&b=1&c"},
		{name: "sort keeps the order of one name", sort: true, in: "/p?b=2&a=9&b=1&a=0", want: "/p?a=9&a=0&b=2&b=1"},
		{name: "sort, sorted already", sort: true, in: "/p?a=2&a=1&b"},
		{name: "sort drops what is empty", sort: true, in: "/p?&b&&a&", want: "/p?a&b"},
		{name: "sort, nothing but empty", sort: true, in: "/p?&&", want: "/p"},
		{name: "sort by decoded names", sort: true, in: "/p?%7A=1&b=2", want: "/p?b=2&%7A=1"},
		{name: "sort and drop", drop: []string{"m"}, sort: true, in: "/p?z&m&a", want: "/p?a&z"},

		{name: "jsessionid", in: "/a;jsessionid=0A1B.node1/b;jsessionid=x;v=1?c=1", want: "/a/b;v=1?c=1"},
		{name: "jsessionid of the root", in: "/;JSESSIONID=x", want: "/"},
		{name: "other path parameters", in: "/a;v=1/b;sid=7;jsessionid=;jsessionid"},
		{name: "sid in a path", in: "/a;sid=" + md5 + "/b", want: "/a/b"},
		{name: "jsessionid behind dots", in: "/a/..;jsessionid=x/b"},
		{name: "jsessionid behind encoded dots", in: "/a/%2e%2E;jsessionid=x/b;jsessionid=x", want: "/a/%2e%2E;jsessionid=x/b"},
		{name: "PHPSESSID", in: "/p?a=1&PHPSESSID=x&phpsessid=y", want: "/p?a=1"},
		{name: "jsessionid in the query", in: "/p?jsessionid=x", want: "/p"},
		{name: "ASP", in: "/p?ASPSESSIONIDQQABCDEF=x&aspsessionid=1", want: "/p?aspsessionid=1"},
		{name: "osCommerce, Zen Cart, xt:Commerce", in: "/p?osCsid=1&zenid=2&XTCsid=3&b", want: "/p?b"},
		{name: "phpBB", in: "/viewtopic.php?f=1&t=2&sid=" + md5, want: "/viewtopic.php?f=1&t=2"},
		{name: "vBulletin", in: "/show?s=" + md5 + "&t=2", want: "/show?t=2"},
		{name: "sid is of the page", in: "/story?sid=17&s=search&session_id=4&sessionid=abc"},
		{name: "one digit less", in: "/story?sid=" + md5[1:]},
		{name: "not hexadecimal", in: "/story?sid=" + md5[1:] + "g"},
		{name: "no value", in: "/p?PHPSESSID=&jsessionid"},
		{name: "digest of another name", in: "/file?hash=" + md5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := mustRules(t, Plan{Scope: ScopeAny, DropParams: tt.drop, SortParams: tt.sort})
			u := mustParse(t, "https://site.test:8443"+tt.in)
			if tt.want == "" {
				tt.want = tt.in
			}
			got := r.Canonical(u)
			if got.RequestURI() != tt.want || got.Origin() != u.Origin() {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			checkURL(t, got)
		})
	}
	if got := (&Rules{params: paramRules{sort: true}}).Canonical(URL{}); !got.IsZero() {
		t.Errorf("the zero URL: %q", got)
	}
}

func TestTrackingParamsAreACopy(t *testing.T) {
	t.Parallel()
	TrackingParams()[0] = "x"
	if got := TrackingParams(); got[0] != "utm_*" || len(got) > MaxDropParams {
		t.Errorf("got %q", got)
	}
	s := Spec{URLs: []string{"http://a.test/"}, DropParams: TrackingParams()}
	if faults := s.Validate(DefaultLimits()); faults != nil {
		t.Errorf("they cannot be given one by one: %+v", faults)
	}
}

func TestDropParamsFaults(t *testing.T) {
	t.Parallel()
	s := Spec{URLs: []string{"http://a.test/"}, DropParams: []string{
		"ok", "", strings.Repeat("a", MaxDropParamBytes), strings.Repeat("a", MaxDropParamBytes+1), "a\n", "a=b", "?a", "a&b", "#", "*", "**",
	}}
	want := []string{
		"drop_params[1] pattern", "drop_params[3] pattern", "drop_params[4] pattern", "drop_params[5] pattern",
		"drop_params[6] pattern", "drop_params[7] pattern", "drop_params[8] pattern",
	}
	faults := s.Validate(DefaultLimits())
	if d := cmp.Diff(want, rules(faults)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, f := range faults {
		if !isSentence(f.Message) {
			t.Errorf("%q", f.Message)
		}
	}
	for n, want := range map[int][]string{MaxDropParams: {}, MaxDropParams + 1: {"drop_params max"}} {
		s.DropParams = slices.Repeat([]string{"a"}, n)
		if got := rules(s.Validate(DefaultLimits())); !slices.Equal(got, want) {
			t.Errorf("%d names: %q", n, got)
		}
	}
}

// Inputs that differ in what the caller wants ignored are one page; a session id that the
// caller wrote stays.
func TestInputsAreCanonical(t *testing.T) {
	t.Parallel()
	s := decodeSpec(t, `{"urls":["http://a.test/?b=1&utm_source=x&a=2","http://a.test/?a=2&b=1","http://a.test/?PHPSESSID=1"],
		"drop_params":["tracking"],"sort_params":true}`)
	p, inputs, err := s.Plan(DefaultLimits(), mustSources(t, "*"))
	if err != nil {
		t.Fatal(err)
	}
	r := mustRules(t, p)
	var got []string
	for _, in := range inputs {
		got = append(got, in.URL.String())
		if r.CanonicalInput(in.URL) != in.URL {
			t.Errorf("the input %s is not canonical", in.URL)
		}
	}
	if d := cmp.Diff([]string{"http://a.test/?a=2&b=1", "http://a.test/?PHPSESSID=1"}, got); d != "" || p.MaxPages != 2 {
		t.Errorf("-want +got:\n%s (of %d pages)", d, p.MaxPages)
	}
	site := decodeSpec(t, `{"seeds":["http://a.test/?x=1","http://a.test/?x=2"],"max_pages":1,"drop_params":["x"]}`)
	if p, _, err = site.Plan(DefaultLimits(), mustSources(t, "*")); err != nil || !slices.Equal(p.Seeds, []string{"http://a.test/"}) {
		t.Errorf("seeds %q, %v", p.Seeds, err)
	}
}

// checkCanonical holds what is true of every canonical form.
func checkCanonical(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, r *Rules, u URL,
) {
	t.Helper()
	for _, canonical := range []func(URL) URL{r.Canonical, r.CanonicalInput} {
		c := canonical(u)
		checkURL(t, c)
		if again := canonical(c); again != c {
			t.Fatalf("%s becomes %s, and that becomes %s", u, c, again)
		}
		if c.Origin() != u.Origin() || len(c.String()) > len(u.String()) {
			t.Fatalf("%s becomes %s", u, c)
		}
		if c.Path() != u.Path() && !strings.Contains(u.Path(), ";") {
			t.Fatalf("%s becomes %s, of another path", u, c)
		}
		// No parameter is made up, and none that is not to go goes.
		rest := strings.Split(u.Query(), "&")
		for piece := range strings.SplitSeq(c.Query(), "&") {
			i := slices.Index(rest, piece)
			if i < 0 && piece != "" {
				t.Fatalf("%s becomes %s, with a new %q", u, c, piece)
			}
			if i >= 0 {
				rest = slices.Delete(rest, i, i+1)
			}
		}
		for _, piece := range rest {
			name, value, _ := strings.Cut(piece, "=")
			if piece != "" && !r.params.drops(name) && !isSession(name, value) {
				t.Fatalf("%s becomes %s, without %q", u, c, piece)
			}
		}
	}
	if c := r.CanonicalInput(u); c.Path() != u.Path() {
		t.Fatalf("the input %s becomes %s", u, c)
	}
}

var paramPieces = []string{
	"a", "b", "a=1", "a=2", "%61=3", "utm_source=x", "utm_", "", "=", "x=%26", "sid=0123456789abcdef0123456789abcdef", "PHPSESSID=1",
	"sort=a", "y=2024", "m=5", "id=7", "d=2024-05-17", "page=3", "f%5B%5D=1", "f[]=2", ";", "/", "?",
}

var pathPieces = []string{
	"a", "b", "a", "", "2024", "05", "may", "1", "a;jsessionid=1", ";sid=0123456789abcdef0123456789abcdef", "..;jsessionid=1",
	"%2e;jsessionid=2", "a.html", "2024-05-17", "%41", "a b",
}

// drawURL draws a URL of the pieces that canonical forms, traps and patterns look at.
func drawURL(t *rapid.T) URL {
	path := rapid.SliceOfN(rapid.SampledFrom(pathPieces), 0, 12).Draw(t, "path")
	query := rapid.SliceOfN(rapid.SampledFrom(paramPieces), 0, 8).Draw(t, "query")
	u, err := ParseURL("http://site.test/" + strings.Join(path, "/") + "?" + strings.Join(query, "&"))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCanonicalProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Plan{
			Scope: ScopeAny, Sources: []string{"*"}, SortParams: rapid.Bool().Draw(t, "sort"),
			DropParams: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "utm_*", "*s*", TrackingWord, "%61", "f[]"}), 0, 3).Draw(t, "drop"),
		}
		r, err := p.Rules()
		if err != nil {
			t.Fatal(err)
		}
		checkCanonical(t, r, drawURL(t))
	})
}

func FuzzCanonical(f *testing.F) {
	for _, p := range paramPieces {
		f.Add("http://site.test/a;jsessionid=1/"+p+"?"+p+"&b&"+p, "b", true)
		f.Add("http://site.test/?"+p+"&a=1&"+p, "*"+p, false)
	}
	f.Fuzz(func(t *testing.T, link, drop string, sort bool) {
		u, err := ParseURL(link)
		if err != nil {
			return
		}
		p := Plan{Site: true, Scope: ScopeAny, Sources: []string{"*"}, DropParams: []string{drop}, SortParams: sort}
		r, err := p.Rules()
		if err != nil {
			return
		}
		checkCanonical(t, r, u)
		checkTrap(t, r, u)
	})
}
