package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// TestThousandSubmissions: promise 3, through the front door.
func TestThousandSubmissions(t *testing.T) {
	t.Parallel()
	const pages, calls = 12, 1000
	gen := gensite.New(pages, 4, 1000, 0)
	site := crawltest.NewHandlerSite(t, gen)
	d := deploy(t, 1)
	const key = "k-3:\"odd\"{}"
	body := `{"seed_url": "` + site.URL + `/p/0", "max_depth": 20, "tags": ["a", "b"]}`

	type answer struct {
		status   int
		replayed string
		body     []byte
		err      error
	}
	answers := make([]answer, calls)
	var begin, done sync.WaitGroup
	begin.Add(1)
	for i := range answers {
		done.Go(func() {
			begin.Wait()
			h := d.as(alpha, "Idempotency-Key", key)
			res, got, err := d.try(t.Context(), http.MethodPost, d.url+"/v1/jobs", h, body)
			if err != nil {
				answers[i].err = err
				return
			}
			answers[i] = answer{status: res.StatusCode, replayed: res.Header.Get("Idempotent-Replayed"), body: got}
		})
	}
	begin.Done()
	done.Wait()
	first, ids := 0, map[string]int{}
	for i, a := range answers {
		if a.err != nil || a.status != http.StatusAccepted || a.replayed != "" && a.replayed != "true" {
			t.Fatalf("submission %d: %v, %d %q %s", i, a.err, a.status, a.replayed, a.body)
		}
		if a.replayed == "" {
			first++
		}
		ids[decode[crawl.Job](t, a.body).ID]++
	}
	if len(ids) != 1 || first != 1 {
		t.Fatalf("%d submissions made the jobs %v, and %d are said to be the first; want one", calls, ids, first)
	}
	job := decode[crawl.Job](t, answers[0].body).ID
	if j := d.watch(alpha, job).end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}

	escaped := strings.ReplaceAll(site.URL, "/", `\/`)
	for _, tc := range []struct {
		name, body string
		status     int
		code       crawl.Code // of the refusal
	}{
		{"JOB-03 as it was", body, 202, ""},
		{"JOB-03 other order", `{"tags":["a","b"],"max_depth":20,"seed_url":"` + site.URL + `/p/0"}`, 202, ""},
		{"JOB-03 space", "\n" + strings.NewReplacer(`": `, "\" :\r\n\t", ", ", " ,\n").Replace(body) + " ", 202, ""},
		{"JOB-03 escaped key", strings.Replace(body, "seed_url", `\u0073eed_url`, 1), 202, ""},
		{"JOB-03 escaped slashes", strings.Replace(body, site.URL, escaped, 1), 202, ""},
		{"JOB-03 other order of a list", strings.Replace(body, `"a", "b"`, `"b", "a"`, 1), 409, crawl.CodeKeyReused},
		{"JOB-03 default given", strings.Replace(body, "{", `{"max_pages": 100, `, 1), 409, crawl.CodeKeyReused},
		{"JOB-03 other input", strings.Replace(body, ": 20", ": 21", 1), 409, crawl.CodeKeyReused},
		{"JOB-03 no integer", strings.Replace(body, ": 20", ": 20.0", 1), 422, crawl.CodeInvalid},
	} {
		res, got := d.exchange(http.MethodPost, d.url+"/v1/jobs", d.as(alpha, "Idempotency-Key", key), tc.body)
		if tc.status != http.StatusAccepted {
			if p := problem(t, res, got, tc.status, tc.code); tc.status == http.StatusConflict && p["job_id"] != job {
				t.Errorf("%s: names the job %v, want %s", tc.name, p["job_id"], job)
			}
			continue
		}
		if res.StatusCode != tc.status || res.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d %v %s", tc.name, res.StatusCode, res.Header, got)
			continue
		}
		if j := decode[crawl.Job](t, got); j.ID != job || j.State != crawl.Completed {
			t.Errorf("%s: replays %s %s, want %s completed", tc.name, j.ID, j.State, job)
		}
	}
	// The key is the tenant's: another's names another job.
	res, got := d.exchange(http.MethodPost, d.url+"/v1/jobs", d.as(beta, "Idempotency-Key", key),
		strings.Replace(body, ": 20", ": 0", 1))
	other := decode[crawl.Job](t, got)
	if res.StatusCode != http.StatusAccepted || res.Header.Get("Idempotent-Replayed") != "" || other.ID == job {
		t.Errorf("another tenant's same key: %d %v %s", res.StatusCode, res.Header, got)
	}
	d.watch(beta, other.ID).end(long)
	res, got = d.get(beta, job, "")
	problem(t, res, got, http.StatusNotFound, crawl.CodeNotFound)

	// Page 0 was fetched for the other tenant, too.
	if gen.Total() != pages+1 || gen.Distinct() != pages {
		t.Errorf("%d pages were served with %d requests, want %d with one each, and one more for the first",
			gen.Distinct(), gen.Total(), pages)
	}
}
