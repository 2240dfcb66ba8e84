package crawl

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// everything asks for all that a site crawl can.
const everything = `{"seeds":["https://a.test/","https://b.test/"],"max_pages":50,"max_depth":3,"time_limit":"2h","scope":"any",
	"include":["/**"],"exclude":["/no/**"],"sitemap":"include","formats":["metadata","text"],"main_content":true,
	"fields":{"title":{"selector":"h1","required":true}},"items":{"selector":"li","fields":{"id":{"selector":"b"},"n":{"selector":"i","type":"number"}}},
	"list_pages":["/list/*"],"collection":{"name":"jobs","key":"id","facets":["id"],"numbers":["n"]},"concurrency":16,"delay":"2s",
	"respect_robots":false,"headers":{"Authorization":"Bearer hush"},"user_agent":"ExampleBot/1.0","drop_params":["tracking"],
	"sort_params":true,"tags":["nightly"],"retention":"48h",
	"webhook":{"url":"https://hook.test/x","events":["job.failed"],"secret":"whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo"}}`

// storedPlan is a plan as a job keeps it: through JSON, with its webhook beside it.
func storedPlan(t *testing.T, p *Plan) *Plan {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	back.Webhook = p.Webhook
	return &back
}

func sourcesOf(t *testing.T, s string) Sources {
	t.Helper()
	src, err := ParseSources(s)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// wide are limits that bound all that everything asks for.
func wide() Limits {
	l := DefaultLimits()
	l.MaxBytes, l.MaxKeptBytes, l.MaxItems = 1000, 2000, 3000
	return l
}

// planned is the plan of a spec as it is stored.
func planned(t *testing.T, text string) *Plan {
	t.Helper()
	p, _, err := decodeSpec(t, text).Plan(wide(), sourcesOf(t, "*"))
	if err != nil {
		t.Fatal(err)
	}
	p.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return storedPlan(t, &p)
}

// What a retry makes of each field of a plan is decided here: kept, of a list of URLs, or today's.
// A field that nobody decided about fails.
func TestRetryDecidesAboutEachField(t *testing.T) {
	t.Parallel()
	old := planned(t, everything)
	today := wide()
	today.HostConcurrency, today.MaxBytes, today.MaxKeptBytes, today.MaxItems = 1, 10, 20, 30
	src := sourcesOf(t, "a.test,c.test")
	_, got, inputs, err := Retry(old, []string{"https://a.test/x", "https://c.test/y"}, []string{"nightly"}, today, src)
	if err != nil || len(inputs) != 2 {
		t.Fatal(inputs, err)
	}
	kept := []string{
		"Seeds", "Scope", "Include", "Exclude", // of a site crawl: where a redirect may lead
		"Concurrency", "Delay", "TimeLimit", "Retention", "IgnoreRobots", "Headers", "UserAgent", "DropParams", "SortParams",
		"Formats", "MainContent", "Fields", "Items", "ListPages", "Collection", "Webhook",
	}
	decided := map[string]any{
		// Those of a list of URLs.
		"Site": false, "MaxPages": int64(2), "MaxDepth": 0, "Sitemap": SitemapSkip,
		// Today's.
		"Sources": src.Strings(), "HostConcurrency": 1, "MaxBytes": int64(10), "MaxKeptBytes": int64(20), "MaxItems": int64(30),
		// Its own.
		"V": got.V, "HeaderOrigins": []string{"https://a.test"}, "Series": old.Series, "Trace": "",
	}
	was, is := reflect.ValueOf(*old), reflect.ValueOf(got)
	for i := range is.NumField() {
		name := is.Type().Field(i).Name
		want, ok := decided[name]
		switch {
		case ok:
		case slices.Contains(kept, name):
			if want = was.Field(i).Interface(); was.Field(i).IsZero() {
				t.Errorf("%s is not in the job that is tried again, so that nothing is known of it", name)
			}
		default:
			t.Errorf("nobody decided what a retry makes of Plan.%s", name)
			continue
		}
		if d := cmp.Diff(want, is.Field(i).Interface()); d != "" {
			t.Errorf("%s -want +got:\n%s", name, d)
		}
	}
}

// The headers of a job never go to an origin that they did not go to before, however many
// origins failed.
func TestRetryKeepsHeadersWhereTheyWere(t *testing.T) {
	t.Parallel()
	old := planned(t, everything)
	var many []string
	for i := range MaxHeaderOrigins + 10 {
		many = append(many, fmt.Sprintf("https://h%d.test/", i))
	}
	for _, tt := range []struct {
		name string
		urls []string
		want []string
	}{
		{"an input", []string{"https://b.test/x"}, []string{"https://b.test"}},
		{"a linked one", []string{"https://evil.test/", "https://a.test/", "http://b.test/", "https://a.test:8443/"}, []string{"https://a.test"}},
		{"linked ones alone", []string{"https://evil.test/"}, nil},
		{"more than a list may name", append(many, "https://a.test/"), []string{"https://a.test"}},
	} {
		s, p, _, err := Retry(old, tt.urls, nil, wide(), sourcesOf(t, "*"))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if d := cmp.Diff(tt.want, p.HeaderOrigins); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
		if (len(p.Headers) > 0) != (tt.want != nil) || (len(s.Headers) > 0) != (tt.want != nil) {
			t.Errorf("%s: headers %v, shown %v", tt.name, p.Headers, s.Headers)
		}
		rules, err := p.Rules()
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range tt.urls {
			at := mustParse(t, u)
			if got := rules.Headers(at); (got != nil) != slices.Contains(tt.want, at.Origin()) {
				t.Errorf("%s: %s gets %d headers", tt.name, u, len(got))
			}
		}
	}
	old.Headers["Via"] = "x" // what only an older service took
	if _, _, _, err := Retry(old, []string{"https://a.test/"}, nil, wide(), sourcesOf(t, "*")); CodeOf(err) != CodeInvalid {
		t.Errorf("a header that is refused today: %v", err)
	}
}

// Limits that were narrowed since bind, those that were widened give no more than was asked for.
func TestRetryWithinLimitsOfToday(t *testing.T) {
	t.Parallel()
	old := planned(t, everything)
	for _, tt := range []struct {
		name string
		l    Limits
		want [4]time.Duration // concurrency as a number, delay, time limit, retention
	}{
		{"as they were", wide(), [4]time.Duration{16, 2 * time.Second, 2 * time.Hour, 48 * time.Hour}},
		{
			"narrowed",
			Limits{Concurrency: 3, HostDelay: 5 * time.Second, TimeLimit: time.Minute, Retention: time.Hour},
			[4]time.Duration{3, 5 * time.Second, time.Minute, time.Hour},
		},
		{
			"below what a spec may ask for",
			Limits{Concurrency: 1, HostDelay: 2 * time.Minute, TimeLimit: time.Millisecond, Retention: time.Second},
			[4]time.Duration{1, 2 * time.Minute, time.Millisecond, time.Second},
		},
		{
			"widened",
			Limits{Concurrency: 1000, TimeLimit: 1000 * time.Hour, Retention: 1000 * time.Hour},
			[4]time.Duration{16, 2 * time.Second, 2 * time.Hour, 48 * time.Hour},
		},
	} {
		_, p, _, err := Retry(old, []string{"https://a.test/"}, nil, tt.l, sourcesOf(t, "*"))
		if got := [4]time.Duration{time.Duration(p.Concurrency), p.Delay, p.TimeLimit, p.Retention}; err != nil || got != tt.want {
			t.Errorf("%s: %v, want %v; %v", tt.name, got, tt.want, err)
		}
	}
	// A plan that says nothing, as that of an older service may, has the defaults.
	_, p, _, err := Retry(&Plan{}, []string{"https://a.test/"}, nil, DefaultLimits(), sourcesOf(t, "*"))
	if err != nil || p.TimeLimit != defaultLimit || p.Retention != defaultKeep || p.Concurrency != defaultFlights || p.Delay != DefaultLimits().HostDelay {
		t.Errorf("%+v, %v", p, err)
	}
}

// One URL that may not be crawled any more refuses the whole, as it does in a submission.
func TestRetryOutsideSources(t *testing.T) {
	t.Parallel()
	_, _, _, err := Retry(planned(t, everything), []string{"https://a.test/", "https://b.test/x"}, nil, wide(), sourcesOf(t, "a.test"))
	if CodeOf(err) != CodeSourceNotAllowed || !strings.Contains(err.Error(), "urls[1]") {
		t.Errorf("%v", err)
	}
	l := wide()
	l.MaxURLs = 1
	if _, _, _, err = Retry(&Plan{}, []string{"https://a.test/", "https://b.test/"}, nil, l, sourcesOf(t, "*")); CodeOf(err) != CodeInvalid {
		t.Errorf("more than a list may have: %v", err)
	}
}

// Another try of a site crawl follows redirects where the crawl would have, and nowhere else.
func TestRetryBoundsRedirects(t *testing.T) {
	t.Parallel()
	old := planned(t, `{"seed_url":"https://a.test/docs/","scope":"prefix","exclude":["/docs/logout**"]}`)
	_, plan, _, err := Retry(old, []string{"https://a.test/docs/x"}, nil, wide(), sourcesOf(t, "*"))
	if err != nil {
		t.Fatal(err)
	}
	again := plan
	_, plan, _, err = Retry(&again, []string{"https://a.test/docs/x"}, nil, wide(), sourcesOf(t, "*")) // a retry of a retry
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Plan{&again, &plan} {
		rules, err := p.Rules()
		if err != nil {
			t.Fatal(err)
		}
		for target, want := range map[string]Reason{
			"https://a.test/docs/y": "", "https://a.test/other": RefusedOutOfScope, "https://a.test/docs/logout?all=1": RefusedExcluded,
		} {
			u, err := ParseURL(target)
			if err != nil {
				t.Fatal(err)
			}
			if got := rules.Check(u, 0); got != want || p.Site {
				t.Errorf("a redirect to %s: %q, want %q; it follows links: %v", target, got, want, p.Site)
			}
		}
	}
}
