package client_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/trawl/pkg/client"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	s, c := newService(t,
		ok(`{"items":[],"next_cursor":"a","has_more":true}`),
		ok(`{"items":[{"url":"u1","state":"deferred","reason":null,"rule":null,"depth":1,"discovered_on":"u0","attempts":2,
			"next_at":"2026-05-06T07:08:09.123Z","fetch_url":"f","final_url":null,"alias_of":null,"seq":null,"status":null,
			"message":null,"new":1},{"url":"u2","state":"skipped","reason":"alias","alias_of":"u3","seq":3}],"next_cursor":"b","has_more":false}`),
	)
	want := []client.URLInfo{
		{
			URL: "u1", State: client.URLDeferred, Depth: 1, DiscoveredOn: "u0", Attempts: 2, FetchURL: "f",
			NextAt: time.Date(2026, 5, 6, 7, 8, 9, 123e6, time.UTC),
		},
		{URL: "u2", State: client.URLSkipped, Reason: "alias", AliasOf: "u3", Seq: 3},
	}
	var got []client.URLInfo
	for u, err := range c.URLs(t.Context(), "j1", client.URLsQuery{State: client.URLSkipped, Reason: "alias", PageSize: 2}) {
		if err != nil || len(u.Raw) == 0 {
			t.Fatalf("%+v, %v", u, err)
		}
		got = append(got, u)
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(client.URLInfo{}, "Raw")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	var asked []string
	for _, r := range s.got() {
		asked = append(asked, r.method+" "+r.uri)
	}
	uris := []string{"GET /v1/jobs/j1/urls?limit=2&reason=alias&state=skipped", "GET /v1/jobs/j1/urls?cursor=a&limit=2&reason=alias&state=skipped"}
	if !slices.Equal(asked, uris) {
		t.Errorf("asked %q, want %q", asked, uris)
	}
}

func TestURLsFail(t *testing.T) {
	t.Parallel()
	s, c := newService(t, refusal(410, client.CodeExpired))
	n := 0
	for u, err := range c.URLs(t.Context(), "j1", client.URLsQuery{}) {
		if n++; u.URL != "" || !isCode(err, client.CodeExpired) || !strings.HasPrefix(err.Error(), "read URLs of job j1: ") {
			t.Errorf("%+v, %v", u, err)
		}
	}
	if n != 1 || s.got()[0].uri != "/v1/jobs/j1/urls" {
		t.Errorf("%d errors of %+v", n, s.got())
	}
	if _, err := c.URLPage(t.Context(), "..", "", client.URLsQuery{}); !isCode(err, client.CodeNotFound) {
		t.Errorf("an id that names another path: %v", err)
	}
}

// Against the whole service: every URL of a job is told, and why a page is missing.
func TestURLsOfTheService(t *testing.T) {
	t.Parallel()
	c, site, stop := start()
	t.Cleanup(stop)
	ctx := t.Context()
	spec := client.Spec{SeedURL: site + "/", MaxPages: 10, Exclude: []string{"/terms"}}
	job, err := c.Submit(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := c.Wait(ctx, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	count := map[client.URLState]int64{}
	for u, err := range c.URLs(ctx, job.ID, client.URLsQuery{PageSize: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		count[u.State]++
	}
	if count[client.URLAccepted] != ended.Accepted || count[client.URLFailed] != ended.Failed || count[client.URLSkipped] != ended.Skipped ||
		ended.Total != ended.Accepted+ended.Failed+ended.Skipped || ended.Total == 0 {
		t.Errorf("listed %v of %+v", count, ended)
	}
	missing := map[string]client.URLInfo{}
	for _, reason := range []string{"http_404", "excluded"} {
		for u, err := range c.URLs(ctx, job.ID, client.URLsQuery{Reason: reason}) {
			if err != nil || u.Reason != reason {
				t.Fatalf("%+v, %v", u, err)
			}
			missing[u.URL] = u
		}
	}
	if u := missing[site+"/lost"]; u.State != client.URLFailed || u.Status != 404 || u.DiscoveredOn == "" {
		t.Errorf("a page that is not there: %+v in %+v", u, missing)
	}
	if u := missing[site+"/terms"]; u.State != client.URLRefused || u.Rule != "/terms" || u.Depth == 0 {
		t.Errorf("a page that is excluded: %+v in %+v", u, missing)
	}
	found := 0
	for u, err := range c.URLs(ctx, job.ID, client.URLsQuery{URL: site + "/./lost#x"}) {
		if err != nil || u.URL != site+"/lost" || u.Reason != "http_404" {
			t.Errorf("one URL: %+v, %v", u, err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("one URL was found %d times", found)
	}
	judged, err := c.Preview(ctx, spec, site+"/terms", site+"/lost")
	if err != nil || len(judged) != 2 || judged[0].Reason != "excluded" || judged[0].Rule != "/terms" || !judged[1].Admitted {
		t.Errorf("%+v, %v", judged, err)
	}
}
