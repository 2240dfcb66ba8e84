package crawl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func decodeSpec(t testing.TB, s string) *Spec {
	t.Helper()
	var spec Spec
	if err := json.Unmarshal([]byte(s), &spec); err != nil {
		t.Fatalf("decode %.200s: %v", s, err)
	}
	return &spec
}

func quoted(n int, format string) string {
	out := make([]string, n)
	for i := range out {
		out[i] = `"` + fmt.Sprintf(format, i) + `"`
	}
	return "[" + strings.Join(out, ",") + "]"
}

func rules(faults []FieldFault) []string {
	out := make([]string, 0, len(faults))
	for _, f := range faults {
		out = append(out, f.Field+" "+f.Rule)
	}
	return out
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, spec string
		want       []string
	}{
		{"list", `{"urls":["http://a.test/"]}`, nil},
		{"site", `{"seed_url":"http://a.test/"}`, nil},
		{"nothing", `{}`, []string{"urls required"}},
		{"empty list", `{"urls":[]}`, []string{"urls required"}},
		{"list and seed", `{"urls":["http://a.test"],"seed_url":"http://a.test"}`, []string{"seed_url exclusive"}},
		{"seed and seeds", `{"seeds":["http://a.test"],"seed_url":"http://a.test"}`, []string{"seeds exclusive"}},
		{
			"URL-07 URL-08 URL-15 bad URLs", `{"urls":["http://ok.test","mailto:a@b","http://u:pw@a.test/","a.test","http://a..b/",
				"http://a.test/\r\nHost: b.test"," http://ok.test\n","http://u:pw@bad host/","http://@a.test/"]}`,
			[]string{
				"urls[1] scheme", "urls[2] userinfo", "urls[3] invalid_url", "urls[4] invalid_url",
				"urls[5] control_character", "urls[7] userinfo",
			},
		},
		{"URL-13 long", `{"seed_url":"http://a.test/` + strings.Repeat("a", 9000) + `"}`, []string{"seed_url url_too_long"}},
		{"most URLs", `{"urls":` + quoted(10000, "http://a.test/%d") + `}`, nil},
		{"too many URLs", `{"urls":` + quoted(10001, "http://a.test/%d") + `}`, []string{"urls max"}},
		{"most seeds", `{"seeds":` + quoted(1000, "http://a.test/%d") + `}`, nil},
		{"too many seeds", `{"seeds":` + quoted(1001, "http://a.test/%d") + `}`, []string{"seeds max"}},
		{
			"site fields on a list", `{"urls":["http://a.test"],"max_pages":1,"max_depth":0,"scope":"host","include":["/a"],"exclude":["/a"],
				"sitemap":"skip"}`,
			[]string{
				"max_pages site_only", "max_depth site_only", "scope site_only", "include site_only", "exclude site_only",
				"sitemap site_only",
			},
		},
		{
			"least", `{"seed_url":"http://a.test","max_pages":1,"max_depth":0,"time_limit":"1s","concurrency":1,"delay":"500ms",
				"retention":"1m","scope":"prefix","formats":[],"tags":["x"]}`, nil,
		},
		{
			"most", `{"seed_url":"http://a.test","max_pages":1000000,"max_depth":100,"time_limit":"168h","concurrency":256,
				"delay":"60s","retention":"720h","scope":"any"}`, nil,
		},
		{
			"all too small", `{"seed_url":"http://a.test","max_pages":0,"max_depth":-1,"time_limit":"999ms","concurrency":0,
				"delay":"499ms","retention":"59s","scope":"HOST","formats":["words"],"tags":["", " a"],"include":[""],"exclude":["["]}`,
			[]string{
				"max_pages min", "max_depth min", "scope enum", "include[0] pattern", "exclude[0] pattern", "time_limit min",
				"formats[0] enum", "concurrency min", "delay min", "tags[0] min", "tags[1] pattern", "retention min",
			},
		},
		{
			"all too big", `{"seed_url":"http://a.test","max_pages":1000001,"max_depth":101,"time_limit":"168h0m1s","concurrency":257,
				"delay":"60001ms","retention":"721h","include":` + quoted(101, "/%d") + `,"exclude":["/` + strings.Repeat("a", 512) + `"],
				"tags":["` + strings.Repeat("ж", 65) + `"]}`,
			[]string{
				"max_pages max", "max_depth max", "include max", "exclude[0] pattern", "time_limit max",
				"concurrency max", "delay max", "tags[0] max", "retention max",
			},
		},
		{"fewer pages than seeds", `{"seeds":["http://a.test","http://b.test","http://b.test/#"],"max_pages":1}`, []string{"max_pages min"}},
		{"as many pages as seeds", `{"seeds":["http://a.test","http://b.test","http://b.test/#"],"max_pages":2}`, nil},
		{"SEL-06 many patterns", `{"seed_url":"http://a.test","exclude":` + quoted(5000, "/%d") + `}`, []string{"exclude max"}},
		{"SEL-06 index", `{"seed_url":"http://a.test","exclude":["/ok","re:(\\d+)\\1","/ok","blog/*"]}`, []string{"exclude[1] pattern", "exclude[3] pattern"}},
		{"tags", `{"urls":["http://a.test"],"tags":["a b","` + strings.Repeat("ж", 64) + `","a\u0000","a\u202eb","a\n"]}`, []string{"tags[2] pattern", "tags[3] pattern", "tags[4] pattern"}},
		{"too many tags", `{"urls":["http://a.test"],"tags":` + quoted(21, "t%d") + `}`, []string{"tags max"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			faults := decodeSpec(t, tt.spec).Validate(DefaultLimits())
			if !slices.Equal(rules(faults), tt.want) {
				t.Errorf("got %q\nwant %q", rules(faults), tt.want)
			}
			for _, f := range faults {
				if !isSentence(f.Message) || strings.Contains(f.Message, "pw") || len(f.Message) > 300 {
					t.Errorf("%s: bad message %q", f.Field, f.Message)
				}
			}
		})
	}
}

// isSentence reports whether a message is one: a capital or what it is about first, a
// full stop last.
func isSentence(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	return strings.HasSuffix(s, ".") && (!unicode.IsLower(first) || strings.HasPrefix(s, "http"))
}

func TestManyFaultsAreCounted(t *testing.T) {
	t.Parallel()
	s := decodeSpec(t, `{"urls":`+quoted(1000, "ftp://a.test/%d")+`}`)
	faults := s.Validate(DefaultLimits())
	if len(faults) != maxFaultsPerList+1 {
		t.Fatalf("%d faults", len(faults))
	}
	last := faults[maxFaultsPerList]
	if last.Field != "urls" || last.Rule != RuleMoreFaults || !strings.Contains(last.Message, "900") {
		t.Errorf("got %+v", last)
	}
}

func TestPlanDefaults(t *testing.T) {
	t.Parallel()
	list := Plan{
		MaxPages: 2, Scope: ScopeAny, Sources: []string{"*"}, Concurrency: 8, HostConcurrency: 2,
		Delay: 500 * time.Millisecond, TimeLimit: time.Hour, Retention: 72 * time.Hour, Sitemap: SitemapSkip,
	}
	site := list
	site.Sitemap = SitemapInclude
	site.Site, site.Seeds, site.MaxPages, site.MaxDepth, site.Scope = true, []string{"http://a.test/x/"}, 100, 5, ScopeHost
	full := Plan{
		Site: true, Seeds: []string{"http://a.test/"}, MaxPages: 7, MaxDepth: 0, Scope: ScopePrefix, Sources: []string{"*"},
		Include: []string{"/a/**"}, Exclude: []string{"re:b"}, Concurrency: 3, HostConcurrency: 2,
		Delay: 2 * time.Second, TimeLimit: time.Minute, Retention: time.Hour,
		IgnoreRobots: true, Sitemap: SitemapOnly, UserAgent: "Bot/1.0", DropParams: []string{"utm_*", "tracking"}, SortParams: true,
		Headers: Headers{"Cookie": "a=b"}, HeaderOrigins: []string{"http://a.test"},
	}
	manySeeds := site
	manySeeds.Seeds, manySeeds.MaxPages = nil, 150
	for i := range 150 {
		manySeeds.Seeds = append(manySeeds.Seeds, fmt.Sprintf("http://a.test/%d", i))
	}
	small := site
	small.MaxPages, small.Concurrency, small.Delay, small.TimeLimit, small.Retention = 10, 2, 0, time.Minute, 2*time.Hour
	small.HostConcurrency = 1

	for _, tt := range []struct {
		name, spec string
		limits     Limits
		want       Plan
	}{
		{"URL-12 list", `{"urls":["http://a.test","http://A.test:80/#x","http://a.test/dir"]}`, DefaultLimits(), list},
		{"site", `{"seed_url":"http://a.test/x/"}`, DefaultLimits(), site},
		{"everything", `{"seeds":["http://a.test"],"max_pages":7,"max_depth":0,"scope":"prefix","include":["/a/**"],
			"exclude":["re:b"],"concurrency":3,"delay":"2s","time_limit":"1m","retention":"1h","tags":["t"],
			"respect_robots":false,"sitemap":"only","user_agent":"Bot/1.0","drop_params":["utm_*","tracking"],"sort_params":true,
			"headers":{"Cookie":"a=b"}}`, DefaultLimits(), full},
		{"more seeds than pages by default", `{"seeds":` + quoted(150, "http://a.test/%d") + `}`, DefaultLimits(), manySeeds},
		{"lower limits", `{"seed_url":"http://a.test/x/"}`, Limits{
			MaxPages: 10, Concurrency: 2, HostConcurrency: 1, TimeLimit: time.Minute, Retention: 2 * time.Hour,
		}, small},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, inputs, err := decodeSpec(t, tt.spec).Plan(tt.limits, mustSources(t, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(inputs) == 0 || (got.Site && len(inputs) != len(got.Seeds)) {
				t.Errorf("%d inputs of %d seeds", len(inputs), len(got.Seeds))
			}
			b, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var stored Plan
			if err := json.Unmarshal(b, &stored); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, stored); diff != "" {
				t.Errorf("a stored plan reads back differently (-want +got)\n%s", diff)
			}
			if _, err := stored.Rules(); err != nil {
				t.Errorf("the rules do not compile: %v", err)
			}
		})
	}
}

func TestPlanInputsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := decodeSpec(t, `{"urls":["http://b.test/%7ea?","http://a.test","http://b.test/~a","http://A.test/#","http://a.test/x"]}`)
	_, inputs, err := s.Plan(DefaultLimits(), mustSources(t, "*"))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(inputs))
	for _, in := range inputs {
		got = append(got, in.URL.String())
	}
	// The first spelling is the one that is fetched.
	if diff := cmp.Diff([]string{"http://b.test/%7ea?", "http://a.test/", "http://a.test/x"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPlanRefusesSources(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, spec, sources string
		code                Code
		want                []string
	}{
		{
			"only sources", `{"urls":["http://a.test/","http://b.test/","http://a.test/x","http://c.test/"]}`, "a.test",
			CodeSourceNotAllowed,
			[]string{"urls[1] source_not_allowed", "urls[3] source_not_allowed"},
		},
		{"seed", `{"seed_url":"http://b.test/"}`, "a.test", CodeSourceNotAllowed, []string{"seed_url source_not_allowed"}},
		{"none allowed", `{"seeds":["http://b.test/"]}`, "", CodeSourceNotAllowed, []string{"seeds[0] source_not_allowed"}},
		{
			"with other faults", `{"urls":["http://b.test/","x"],"concurrency":0}`, "a.test",
			CodeInvalid,
			[]string{"urls[1] invalid_url", "concurrency min", "urls[0] source_not_allowed"},
		},
		{"other faults only", `{"urls":["x"]}`, "a.test", CodeInvalid, []string{"urls[0] invalid_url"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, inputs, err := decodeSpec(t, tt.spec).Plan(DefaultLimits(), mustSources(t, tt.sources))
			var f *Fault
			if !errors.As(err, &f) || f.Code != tt.code || inputs != nil {
				t.Fatalf("got %v and %d inputs, want a fault of code %s", err, len(inputs), tt.code)
			}
			if !slices.Equal(rules(f.Fields), tt.want) {
				t.Errorf("got %q, want %q", rules(f.Fields), tt.want)
			}
			for _, ff := range f.Fields {
				if ff.Rule == "source_not_allowed" &&
					(!strings.Contains(ff.Message, "http://") || !strings.Contains(ff.Message, "allowed")) {
					t.Errorf("%q names not the URL and what is allowed", ff.Message)
				}
			}
		})
	}
}

// A refusal names a few of the sources, and says how many more there are: it is
// repeated for every URL.
func TestRefusalNamesFewSources(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 300 {
		list = append(list, fmt.Sprintf("s%d.%s.test", i, strings.Repeat("a", 60)))
	}
	_, _, err := decodeSpec(t, `{"urls":["http://b.test/"]}`).Plan(DefaultLimits(), mustSources(t, strings.Join(list, ",")))
	var f *Fault
	if !errors.As(err, &f) || len(f.Fields) != 1 {
		t.Fatalf("got %v, want one field fault", err)
	}
	got := f.Fields[0].Message
	if !isSentence(got) || !strings.Contains(got, "s4.") || strings.Contains(got, "s5.") ||
		!strings.HasSuffix(got, ", and 295 more.") || len(got) > 500 {
		t.Errorf("got %q", got)
	}
}

// JOB-03: what is the same submission.
func TestDigest(t *testing.T) {
	t.Parallel()
	base := decodeSpec(t, `{"seed_url":"http://site.test/","max_depth":2,"time_limit":"60s","include":["/a","/b"]}`).Digest()
	for _, tt := range []struct {
		spec string
		same bool
	}{
		{`{"include":["/a","/b"],"time_limit":"60s","max_depth":2,"seed_url":"http://site.test/"}`, true},
		{"{ \"seed_url\" : \"http:\\/\\/site.test/\",\n\"max_depth\":2,\"time_limit\":\"1m\",\"\\u0069nclude\":[\"/a\",\"/b\"]}", true},
		{`{"seed_url":"http://site.test/","max_depth":2,"time_limit":"60s","include":["/a","/b"],"exclude":[]}`, true},
		{`{"seed_url":"http://site.test/","max_depth":2,"time_limit":"60s","include":["/b","/a"]}`, false},
		{`{"seed_url":"http://site.test/","max_depth":2,"time_limit":"60s","include":["/a","/b"],"scope":"host"}`, false},
		{`{"seed_url":"http://site.test/","max_depth":2,"include":["/a","/b"]}`, false},
		{`{"seed_url":"http://site.test","max_depth":2,"time_limit":"60s","include":["/a","/b"]}`, false},
	} {
		if got := decodeSpec(t, tt.spec).Digest() == base; got != tt.same {
			t.Errorf("%s: same %v, want %v", tt.spec, got, tt.same)
		}
	}
}

// A digest is stored with an idempotency key for a month or more: fields that are not
// given must never change it, or an upgrade turns a repeated submission into a conflict.
// These digests are of the first version.
func TestDigestIsStable(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"urls":["http://a.test/","http://b.test/x?y=1"]}`: "4683b27c9c8f33b44383327d344000ca046ae4ae8e66f3fde544d1d24b3896ae",
		`{"seed_url":"http://site.test/","max_pages":7,"max_depth":0,"time_limit":"60s","scope":"prefix","include":["/a/**"],
			"exclude":["re:b"],"concurrency":3,"delay":"2s","tags":["t"],"retention":"1h","headers":{},"drop_params":[],
			"user_agent":"","sort_params":false,"sitemap":""}`: "ba3bc17b65d5fb3cbc67ce2755dedf125face363696ef8723441b8fec0cbc87a",
		`{"seeds":["http://a.test","http://b.test"],"respect_robots":null}`: "dbc445d5cc8452900da88e3e1e412d179da66071c01cf6384a5ca9510fb5208a",
	} {
		if got := fmt.Sprintf("%x", decodeSpec(t, spec).Digest()); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	seen := map[[32]byte]string{decodeSpec(t, `{"seed_url":"http://a.test"}`).Digest(): "nothing"}
	for _, field := range []string{
		`"respect_robots":true`, `"respect_robots":false`, `"sitemap":"include"`, `"headers":{"A":"b"}`, `"headers":{"A":"c"}`,
		`"user_agent":"b"`, `"drop_params":["a"]`, `"sort_params":true`,
	} {
		d := decodeSpec(t, `{"seed_url":"http://a.test",`+field+`}`).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s are one input", field, other)
		}
		seen[d] = field
	}
}

// What an API stored before a field was there means what it meant: robots.txt counts,
// no sitemap is read, nothing is sent or dropped.
func TestOldPlan(t *testing.T) {
	t.Parallel()
	var p Plan
	text := `{"site":true,"seeds":["http://a.test/"],"max_pages":100,"max_depth":5,"scope":"host","sources":["*"],"concurrency":8,` +
		`"delay":500000000,"time_limit":3600000000000,"retention":259200000000000,"host_concurrency":2}`
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	u := mustParse(t, "http://a.test/?b&a")
	if r := mustRules(t, p); p.IgnoreRobots || p.Sitemap != "" || r.Headers(u) != nil || r.Canonical(u) != u {
		t.Errorf("%+v", p)
	}
	if b, err := json.Marshal(p); err != nil || string(b) != text {
		t.Errorf("it is stored again as %s (%v)", b, err)
	}
}

func TestDurationJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in    string
		want  time.Duration
		fault bool
	}{
		{`"500ms"`, 500 * time.Millisecond, false},
		{`"1h30m"`, 90 * time.Minute, false},
		{`3600`, 0, true},
		{`"3600"`, 0, true},
		{`""`, 0, true},
		{`"1 hour"`, 0, true},
		{`true`, 0, true},
		{`{}`, 0, true},
	} {
		var s Spec
		err := json.Unmarshal([]byte(`{"time_limit":`+tt.in+`}`), &s)
		if tt.fault {
			if CodeOf(err) != CodeInvalid || !strings.Contains(messageOf(err), `"90s"`) {
				t.Errorf("%s: got %v, want a fault that shows how to write one", tt.in, err)
			}
			continue
		}
		if err != nil || time.Duration(*s.TimeLimit) != tt.want {
			t.Errorf("%s: %v, %v", tt.in, s.TimeLimit, err)
			continue
		}
		b, err := json.Marshal(s)
		var again Spec
		if err != nil || json.Unmarshal(b, &again) != nil || *again.TimeLimit != *s.TimeLimit {
			t.Errorf("%s became %s (%v)", tt.in, b, err)
		}
	}
	var s Spec
	if err := json.Unmarshal([]byte(`{"time_limit":null}`), &s); err != nil || s.TimeLimit != nil {
		t.Errorf("null: %v, %v", s.TimeLimit, err)
	}
}
