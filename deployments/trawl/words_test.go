package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"https://docs.example.org/3/": "",
		"HTTP://EXAMPLE.org":          "",
		"http://[::1]:8000/":          "",
		"example.org":                 "example.org is no URL: did you mean https://example.org/ ?",
		"example.org:8080/x":          "example.org:8080/x is no URL: did you mean https://example.org:8080/x ?",
		"127.0.0.1:8000":              "127.0.0.1:8000 is no URL: did you mean http://127.0.0.1:8000/ ?",
		"localhost":                   "localhost is no URL: did you mean http://localhost/ ?",
		"htps://example.org":          "htps://example.org is no URL: did you mean https://example.org/ ?",
		"htp://example.org":           "htp://example.org is no URL: did you mean http://example.org/ ?",
		"https:/example.org/x":        "https:/example.org/x is no URL: did you mean https://example.org/x ?",
		"https//example.org/x":        "https//example.org/x is no URL: did you mean https://example.org/x ?",
		"//example.org/x":             "//example.org/x is no URL: did you mean https://example.org/x ?",
		"ftp://example.org/":          "ftp://example.org/ cannot be crawled: only http:// and https:// can.",
		"file:///etc/passwd":          "file:///etc/passwd cannot be crawled: only http:// and https:// can.",
		"http://me:pw@example.org/":   "…@example.org/ holds a user name or password: leave out what stands before the @.",
		"me:pw@example.org":           "…@example.org is no URL: did you mean https://example.org/ ?",
		"crawl":                       "crawl is no URL: write it like https://docs.example.org/.",
		"":                            `"" is no URL: write it like https://docs.example.org/.`,
	} {
		u, got := parseURL(arg)
		if got != want || (want == "") != !u.IsZero() {
			t.Errorf("%q: %q, %v; want %q", arg, got, u, want)
		}
	}
	if _, fault := parseURL("http://exa mple.org/"); !strings.HasPrefix(fault, "http://exa mple.org/ is no URL "+
		"that can be crawled: ") {
		t.Errorf("a broken URL: %q", fault)
	}
}

func TestTerritory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		urls  []string
		scope client.Scope
		want  territory
	}{
		{
			"loopback",
			[]string{"http://127.0.0.1:8000/x"},
			client.ScopeHost,
			territory{"http://127.0.0.1:8000/", "127.0.0.1:8000", true},
		},
		{
			"loopback 6", []string{"http://[::1]:8000/"}, client.ScopeHost, territory{"http://[::1]:8000/", "[::1]:8000", true},
		},
		{"default port", []string{"http://127.0.0.1/"}, client.ScopeHost, territory{"127.0.0.1", "127.0.0.1:80", true}},
		{"private", []string{"https://10.1.2.3/"}, client.ScopeHost, territory{"10.1.2.3", "10.1.2.3:443", false}},
		{"overlay", []string{"https://100.64.0.1/"}, client.ScopeHost, territory{"100.64.0.1", "100.64.0.1:443", false}},
		{"public", []string{"http://93.184.216.34/"}, client.ScopeHost, territory{"93.184.216.34", "", false}},
		{
			"both",
			[]string{"http://127.0.0.1:1/", "http://93.184.216.34/"},
			client.ScopePrefix,
			territory{"http://127.0.0.1:1/,93.184.216.34", "127.0.0.1:1", false},
		},
		{
			"an address has no domain",
			[]string{"http://127.0.0.1:1/"},
			client.ScopeDomain,
			territory{"127.0.0.1:1", "127.0.0.1:1", true},
		},
		{"any", []string{"http://127.0.0.1:1/"}, client.ScopeAny, territory{"*", "127.0.0.1:1", false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			urls, err := parseURLs(tt.urls)
			if err != nil {
				t.Fatal(err)
			}
			got := territoryOf(t.Context(), urls, tt.scope)
			if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			sources, err := crawl.ParseSources(got.sources)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range urls {
				if !sources.Allows(u) {
					t.Errorf("%v was named and may not be crawled", u)
				}
			}
			if _, err := netguard.Parse(got.private); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		url   string
		scope client.Scope
		want  string
	}{
		{"https://docs.example.co.uk/x", client.ScopeHost, "docs.example.co.uk"},
		{"https://docs.example.co.uk./x", client.ScopePrefix, "docs.example.co.uk"},
		{"https://docs.example.co.uk/x", client.ScopeDomain, "example.co.uk *.example.co.uk"},
		{"https://docs.example.co.uk:8443/x", client.ScopeDomain, "example.co.uk:8443 *.example.co.uk:8443"},
		{"https://docs.example.co.uk:8443/x", client.ScopeHost, "https://docs.example.co.uk:8443/"},
		{"http://co.uk/", client.ScopeDomain, "co.uk"},
		{"http://intranet/", client.ScopeDomain, "intranet"},
	} {
		u, err := crawl.ParseURL(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(sourcesOf(u, tt.scope), " ")
		if got != tt.want {
			t.Errorf("%s with scope %s: %s, want %s", tt.url, tt.scope, got, tt.want)
		}
		sources, err := crawl.ParseSources(strings.ReplaceAll(got, " ", ","))
		if err != nil || !sources.Allows(u) {
			t.Errorf("%s: what was named may not be crawled (%v)", tt.url, err)
		}
	}
}

// A name that is not known is left to the crawl, which says so of the page.
func TestUnknownHost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as when it cannot be looked up
	u, err := crawl.ParseURL("http://nowhere.invalid/")
	if err != nil {
		t.Fatal(err)
	}
	want := territory{sources: "nowhere.invalid"}
	if got := territoryOf(ctx, []crawl.URL{u}, client.ScopeHost); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Less than the usual delay is for this machine; towards others the service refuses it.
func TestHostDelay(t *testing.T) {
	t.Parallel()
	d := func(d time.Duration) *time.Duration { return &d }
	for _, tt := range []struct {
		name   string
		delay  *time.Duration
		local  bool
		usual  time.Duration
		least  time.Duration // of the crawler
		submit time.Duration // in the spec
	}{
		{"none", nil, false, hostDelay, hostDelay, 0},
		{"none here", nil, true, demoDelay, demoDelay, 0},
		{"longer", d(2 * time.Second), false, hostDelay, hostDelay, 2 * time.Second},
		{"shorter", d(time.Millisecond), false, hostDelay, hostDelay, time.Millisecond},
		{"zero", d(0), false, hostDelay, hostDelay, time.Nanosecond},
		{"shorter here", d(time.Millisecond), true, hostDelay, time.Millisecond, 0},
		{"zero here", d(0), true, demoDelay, 0, 0},
		{"longer here", d(time.Second), true, demoDelay, demoDelay, time.Second},
	} {
		c := crawlCommand{Delay: tt.delay, URLs: []string{"http://a.example/"}}
		spec := c.spec()
		least := c.hostDelay(tt.local, tt.usual, &spec)
		if least != tt.least || spec.Delay != tt.submit {
			t.Errorf("%s: %v and %v in the spec, want %v and %v", tt.name, least, spec.Delay, tt.least, tt.submit)
		}
	}
}

func TestCleanJSON(t *testing.T) {
	t.Parallel()
	const text = "{\"a\": \"\u009b31m \u202e é 漢 \U000e0041 \x7f\",\n\t\"b\": 1}"
	got := cleanJSON([]byte(text))
	if hostile.Match(got) {
		t.Errorf("it still holds what a terminal obeys: %q", got)
	}
	var was, is any
	if err := json.Unmarshal([]byte(text), &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &is); err != nil || !cmp.Equal(was, is) {
		t.Errorf("it means something else: %s (%v)", got, err)
	}
	if plain := []byte(`{"a": "é"}`); string(cleanJSON(plain)) != string(plain) {
		t.Error("what is clean was changed")
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"short", "short"},
		{"short  and\nkept", "short  and\nkept"},
		{"  one two three four", "  one two\n  three four"},
		{"see http://example.org/long/path now", "see\nhttp://example.org/long/path\nnow"},
		{"漢字漢字 漢字漢字\n", "漢字漢字\n漢字漢字\n"},
		{"", ""},
	} {
		if got := wrap(tt.text, 12); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestListRows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	jobs := []client.Job{
		{
			ID: "j1", State: client.Running, Processed: 3, Total: 9, Failed: 1, CreatedAt: now.Add(-90 * time.Second),
			Spec: &client.Spec{SeedURL: "http://a/"}, Tags: []string{"x", "y"},
		},
		{
			ID: "j2", State: client.Failed, CreatedAt: now.Add(-50 * time.Hour),
			Spec: &client.Spec{URLs: []string{"http://b/", "http://c/"}, URLsOmitted: 7},
		},
		{ID: "j3", State: client.Queued, CreatedAt: now.Add(time.Second)},
	}
	want := [][]string{
		{"JOB", "STATE", "PAGES", "FAILED", "AGE", "FROM"},
		{"j1", "running", "3/9", "1", "1m", "http://a/ [x, y]"},
		{"j2", "failed", "0/0", "0", "2d", "http://b/ and 8 more"},
		{"j3", "queued", "0/0", "0", "0s", "-"},
	}
	if diff := cmp.Diff(want, listRows(jobs, now)); diff != "" {
		t.Error(diff)
	}
}

// A server that is silent is mentioned once, and once more when it is back.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			mu    sync.Mutex
			notes []string
		)
		show := &display{view: watch.New(watch.Options{Out: io.Discard}), note: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			notes = append(notes, text)
		}}
		noted := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(notes)
		}
		defer show.close()
		f := follow(show, 10*time.Second)
		defer f.stop()
		pass := func(d time.Duration) {
			timer := time.NewTimer(d)
			<-timer.C
			synctest.Wait()
		}
		job := &client.Job{State: client.Running}
		pass(9 * time.Second)
		f.seen(job)
		pass(9 * time.Second)
		if early := noted(); len(early) != 0 {
			t.Fatalf("it complains too early: %q", early)
		}
		pass(time.Minute)
		f.seen(job)
		f.seen(job)
		f.stop()
		pass(time.Minute)
		want := []string{
			"The server has not answered for 10s. Trying on; Ctrl-C ends that.",
			"The server answers again.",
		}
		if diff := cmp.Diff(want, noted()); diff != "" {
			t.Error(diff)
		}
	})
}

// The exit codes are part of the contract with scripts.
func TestCodeOf(t *testing.T) {
	t.Parallel()
	for state, want := range map[client.State]error{
		client.Completed: nil, client.CompletedWithErrors: exitError(1), client.Cancelled: exitError(1),
		client.Failed: exitError(2), "unheard_of": exitError(2),
	} {
		if got := codeOf(&client.Job{State: state}); got != want { //nolint:errorlint // it is wrapped by nobody
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}
