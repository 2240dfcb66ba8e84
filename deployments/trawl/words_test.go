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
	"github.com/google/go-cmp/cmp/cmpopts"

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

// The directory of a URL without a slash at its end is more than a person may think.
func TestPrefixNotes(t *testing.T) {
	t.Parallel()
	const http = "http://docs.example"
	for url, want := range map[string]string{
		http:                  "",
		http + "/":            "",
		http + "/3/":          "",
		http + "/3/page.html": "",
		http + "/3?q=/a":      "links below " + http + "/ are followed; write " + http + "/3/ for what is below 3.",
		http + "/3/tutorial":  "links below " + http + "/3/ are followed; write " + http + "/3/tutorial/ for what is below tutorial.",
	} {
		u, err := crawl.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join((&crawlCommand{Scope: "prefix"}).prefixNotes([]crawl.URL{u}), "\n")
		if want != "" {
			want = "--scope prefix: " + want
		}
		if got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		if got := (&crawlCommand{Scope: "host"}).prefixNotes([]crawl.URL{u}); got != nil {
			t.Errorf("another scope: %q", got)
		}
	}
}

func TestSpec(t *testing.T) {
	t.Parallel()
	plain := crawlCommand{URLs: []string{"http://a.example/"}, Scope: "host", Sitemap: "include"}
	if diff := cmp.Diff(client.Spec{SeedURL: "http://a.example/"}, plain.spec(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what is the default is submitted: %s", diff)
	}
	c := crawlCommand{
		URLs: []string{"http://a.example/", "http://b.example/"}, Scope: "domain", Sitemap: "only", IgnoreRobots: true,
		Headers: []string{"Authorization: Bearer a:b", "X-Empty:"}, UserAgent: "ExampleBot/1.0",
	}
	want := client.Spec{
		Seeds: c.URLs, Scope: client.ScopeDomain, Sitemap: client.SitemapOnly, RespectRobots: new(false),
		Headers: map[string]string{"Authorization": "Bearer a:b", "X-Empty": ""}, UserAgent: "ExampleBot/1.0",
	}
	if diff := cmp.Diff(want, c.spec(), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// Hints name the program in a way that works where it was started.
func TestInvocation(t *testing.T) {
	t.Parallel()
	const goRun = "go run ./deployments/trawl"
	for arg0, want := range map[string]string{
		"":                                "trawl",
		"trawl":                           "trawl",
		"./bin/trawl-2":                   "trawl-2",
		"/usr/local/bin/trawl":            "trawl",
		"/tmp/go-build123/b001/exe/trawl": goRun,
		"/home/me/.cache/go-build/0a/" + strings.Repeat("0a", 32) + "-d/trawl": goRun,
		"/var/cache/0a/" + strings.Repeat("0a", 32) + "-d/trawl":               goRun, // GOCACHE
		"/home/me/go-projects/trawl":                                           "trawl",
	} {
		if got := invocation(arg0); got != want {
			t.Errorf("%q: %q, want %q", arg0, got, want)
		}
	}
	var stderr strings.Builder
	p := program{name: goRun, args: []string{"crawl", "--max-page", "3"}, stdout: io.Discard, stderr: &stderr}
	if p.run(t.Context()); !strings.HasSuffix(stderr.String(), "\nRun "+goRun+" crawl --help.\n") {
		t.Errorf("it says %q", stderr.String())
	}
}

// Nothing of the types and tokens of the parser is said, and no value that may be a key.
func TestParserWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"crawl --max-pages -1":  `--max-pages: give a whole number from 1, not "-1".`,
		"crawl --max-pages":     "--max-pages: its value is missing: give a whole number from 1.",
		"crawl --max-depth 1.5": `--max-depth: give a whole number from 0, not "1.5".`,
		"crawl --concurrency=a": `--concurrency: give a whole number from 1, not "a".`,
		"crawl --delay 5":       `--delay: write a unit, as 5s or 500ms, not "5".`,
		"crawl --delay -1s":     `--delay: give more than 0s, not "-1s".`,
		"crawl --time-limit x":  `--time-limit: write a unit, as 90s or 10m, not "x".`,
		"crawl --no-follow=x":   "--no-follow: it takes no value.",
		"crawl --scope":         "--scope: its value is missing.",
		"crawl --tag":           "--tag: its value is missing.",
		"crawl -o":              "--output: its value is missing.",
		"crawl --sitemap x":     `--sitemap: give one of include, only, skip, not "x".`,
		"list --key -secret":    "--key: a value that begins with - is written as --key=VALUE.",
		"list --limit many":     `--limit: give a whole number from 1, not "many".`,
		"urls":                  "The id of a job is missing; list shows the jobs that there are.",
		"cancel":                "The id of a job is missing; list shows the jobs that there are.",
		"pause":                 "The id of a job is missing; list shows the jobs that there are.",
		"resume":                "The id of a job is missing; list shows the jobs that there are.",
		"retry":                 "The id of a job is missing; list shows the jobs that there are.",
		"retry a b":             "unexpected argument b",
		"status a b":            "unexpected argument b",
	} {
		code, _, stderr := runHere(t, nil, strings.Fields(line)...)
		said, _, _ := strings.Cut(stderr, "\nRun trawl")
		if want != "" && (code != exitFailed || said != "trawl: "+want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, said, want)
		}
		for _, word := range []string{" expected", "EOL", "secret", "duration", " int"} {
			if strings.Contains(stderr, word) {
				t.Errorf("%s: it says %q", line, stderr)
			}
		}
	}
}

// What does not fit side by side goes on a line below, and nothing but the last column is cut.
func TestLayout(t *testing.T) {
	t.Parallel()
	rows := [][]string{
		{"JOB", "STATE", "PAGES", "FAILED", "AGE", "FROM"},
		{"jvmsncdti4iwrute7f6taweftuy", "completed_with_errors", "7/7", "1", "3h", "https://docs.example.org/3/tutorial/index.html"},
	}
	for bound, want := range map[int]string{
		0:   "jvmsncdti4iwrute7f6taweftuy  completed_with_errors  7/7    1       3h   https://docs.example.org/3/tutorial/index.html\n",
		100: "jvmsncdti4iwrute7f6taweftuy  completed_with_errors  7/7    1       3h   https://docs.example.org/3/…\n",
		80: "jvmsncdti4iwrute7f6taweftuy  completed_with_errors  7/7    1       3h\n" +
			"  https://docs.example.org/3/tutorial/index.html\n",
		40: "jvmsncdti4iwrute7f6taweftuy\n  completed_with_errors  7/7    1\n  3h   https://docs.example.org/3/tutor…\n",
	} {
		widths, breaks := layout(rows, bound)
		if got := tableRow(rows[1], widths, breaks, bound); got != want {
			t.Errorf("%d columns:\n%swant\n%s", bound, got, want)
		}
	}
}

func TestURLText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		url  client.URLInfo
		want string
	}{
		{
			client.URLInfo{URL: "http://a/", State: client.URLAccepted, FinalURL: "http://a/"},
			"accepted   -               http://a/",
		},
		{
			client.URLInfo{
				URL: "http://a/x", State: client.URLSkipped, Reason: "robots", Rule: "Disallow: /x", DiscoveredOn: "http://a/",
			},
			"skipped    robots          http://a/x  by Disallow: /x  linked from http://a/",
		},
		{
			client.URLInfo{URL: "http://a/o", State: client.URLSkipped, Reason: "alias", AliasOf: "http://a/", FinalURL: "http://a/n"},
			"skipped    alias           http://a/o  same page as http://a/",
		},
		{
			client.URLInfo{URL: "http://a/f", State: client.URLFailed, Reason: "http_404", FinalURL: "http://a/g", Message: "Gone."},
			"failed     http_404        http://a/f  leads to http://a/g  Gone.",
		},
	} {
		if got := urlText(&tt.url); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
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
