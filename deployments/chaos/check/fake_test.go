package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// fakeJob is a job of the fake service: one more of its URLs has its outcome with each read.
type fakeJob struct {
	id, retryOf string
	body        string
	urls        []client.URLInfo // as they end
	done        int
	reads       int
	ended       time.Time
	cancelled   bool
	collection  string
}

// fakeService is a service that knows the answers, and the lies that it tells.
type fakeService struct {
	t      *testing.T
	site   *Site
	lie    string
	mu     sync.Mutex
	jobs   map[string]*fakeJob // by id
	keys   map[string]*fakeJob
	number int
}

func newFake(t *testing.T, site *Site, lie string) *fakeService {
	return &fakeService{t: t, site: site, lie: lie, jobs: map[string]*fakeJob{}, keys: map[string]*fakeJob{}}
}

// status is the job as it is now.
func (f *fakeService) status(j *fakeJob) map[string]any {
	n := map[client.URLState]int{}
	for _, u := range j.urls[:j.done] {
		n[u.State]++
	}
	queued, state, stop, ended := len(j.urls)-j.done, "running", any(nil), any(nil)
	if j.cancelled {
		n[client.URLCancelled], queued = queued, 0
	}
	if j.cancelled || queued == 0 {
		state, stop = "completed", string(crawl.StopFrontierEmpty)
		if n[client.URLFailed] > 0 {
			state = "completed_with_errors"
		}
		if j.cancelled {
			state, stop = "cancelled", "cancelled"
		}
		ended = j.ended.Format(time.RFC3339Nano)
	}
	s := map[string]any{
		"job_id": j.id, "state": state, "stop_reason": stop, "retry_of": j.retryOf,
		"total": len(j.urls), "queued": queued, "active": 0, "deferred": 0,
		"accepted": n[client.URLAccepted], "failed": n[client.URLFailed], "skipped": n[client.URLSkipped],
		"processed": n[client.URLAccepted] + n[client.URLFailed] + n[client.URLSkipped],
		"cancelled": n[client.URLCancelled], "records": n[client.URLAccepted],
		"report":     map[string]any{"sitemaps": 1},
		"created_at": "2026-01-01T00:00:00Z", "started_at": "2026-01-01T00:00:01Z", "ended_at": ended,
	}
	f.bend(j, s)
	return s
}

// bend makes a lie of a status.
func (f *fakeService) bend(j *fakeJob, s map[string]any) {
	running := s["state"] == "running"
	switch f.lie {
	case "a count is off by one":
		if j.done == 3 {
			s["total"] = s["total"].(int) + 1
		}
	case "processed is off by one":
		s["processed"] = s["processed"].(int) + 1
	case "a count falls":
		if n := s["accepted"].(int); running && n > 1 && j.reads%2 == 0 {
			s["accepted"], s["processed"], s["queued"] = n-1, s["processed"].(int)-1, s["queued"].(int)+1
		}
	case "the end changes":
		if !running {
			s["ended_at"] = fmt.Sprintf("2026-01-01T00:01:%02dZ", j.reads%60)
		}
	case "an ended job runs again":
		if !running && j.reads > len(j.urls) {
			s["state"] = "running"
		}
	case "it ends with work left":
		if running && s["queued"].(int) == 1 {
			s["state"], s["stop_reason"], s["ended_at"] = "completed", "frontier_empty", "2026-01-01T00:01:00Z"
		}
	case "it ends for no reason":
		s["stop_reason"] = nil
	case "started_at changes":
		s["started_at"] = fmt.Sprintf("2026-01-01T00:01:%02dZ", j.reads%60)
	case "no way between states":
		if running {
			s["state"] = []string{"cancelling", "running"}[j.reads%2]
		}
	}
}

// ServeHTTP serves what the checks ask for.
func (f *fakeService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")[1:] // without v1
	switch {
	case parts[0] == "collections":
		f.items(w)
	case len(parts) == 1:
		f.submit(w, r, nil)
	default:
		j := f.jobs[parts[1]]
		if j == nil || f.lie == "an accepted job is not found" && j.done > 2 {
			f.problem(w, http.StatusNotFound, "not_found", "")
			return
		}
		f.job(w, r, j, strings.Join(parts[2:], ""))
	}
}

func (f *fakeService) job(w http.ResponseWriter, r *http.Request, j *fakeJob, what string) {
	switch what {
	case "":
		if j.reads++; f.lie != "it never ends" || j.done < len(j.urls)-1 {
			f.advance(j)
		}
		f.answer(w, http.StatusOK, f.status(j))
	case "cancel":
		if j.cancelled = f.lie != "cancel does nothing" && j.done < len(j.urls); j.cancelled {
			j.ended = time.Now()
		}
		f.answer(w, http.StatusOK, f.status(j))
	case "retry-failed":
		f.submit(w, r, j)
	case "records":
		f.page(w, r, f.records(j))
	case "errors":
		var out []any
		for _, u := range j.urls[:j.done] {
			if u.State == client.URLFailed {
				attempts := 3
				out = append(out, map[string]any{"source_url": u.URL, "error_type": u.Reason, "attempts": attempts})
			}
		}
		f.page(w, r, out)
	case "urls":
		var out []any
		for i, u := range j.urls {
			if i >= j.done {
				u.State = client.URLCancelled
			}
			out = append(out, u)
		}
		if f.lie == "a URL is in two outcomes" {
			out[len(out)-1] = out[0]
		}
		f.page(w, r, out)
	}
}

// advance gives one more URL its outcome.
func (f *fakeService) advance(j *fakeJob) {
	if j.cancelled || j.done == len(j.urls) {
		return
	}
	if j.done++; j.done == len(j.urls) {
		j.ended = time.Now()
	}
}

func (f *fakeService) records(j *fakeJob) []any {
	var out []any
	for _, u := range j.urls[:j.done] {
		if u.State == client.URLAccepted {
			out = append(out, map[string]any{"seq": len(out) + 1, "source_url": u.URL, "url": u.FinalURL, "item": nil})
		}
	}
	last := len(out) - 1
	switch {
	case last < 1:
	case f.lie == "a page is recorded twice":
		out[last] = map[string]any{"seq": last + 1, "source_url": out[0].(map[string]any)["source_url"], "url": "x"}
	case f.lie == "a page ends recorded twice":
		out[last].(map[string]any)["url"] = out[0].(map[string]any)["url"]
	case f.lie == "a record is missing":
		out = out[:last]
	case f.lie == "a cursor gives another page":
		j.reads++
		out[0].(map[string]any)["title"] = strconv.Itoa(j.reads)
	}
	return out
}

// page answers a page of a list; a cursor is the place where it begins.
func (f *fakeService) page(w http.ResponseWriter, r *http.Request, all []any) {
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	to := min(len(all), from+max(1, limit))
	next := any(nil)
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	items := all[min(from, to):to]
	f.answer(w, http.StatusOK, map[string]any{
		"items": slices.Concat([]any{}, items), "has_more": to < len(all), "next_cursor": next,
	})
}

func (f *fakeService) items(w http.ResponseWriter) {
	out := []any{}
	for _, j := range f.jobs {
		for _, u := range j.urls[:j.done] {
			if j.collection != "" && u.State == client.URLAccepted {
				out = append(out, map[string]any{"key": u.URL, "source_url": u.URL})
			}
		}
	}
	switch f.lie {
	case "an item is missing":
		out = out[1:]
	case "an item is there twice":
		out = append(out, out[0])
	case "an item is of no job":
		out = append(out, map[string]any{"key": "x", "source_url": "http://127.0.0.1:1/x"})
	}
	for i, item := range out {
		numbered := maps.Clone(item.(map[string]any))
		numbered["n"] = i + 1
		out[i] = numbered
	}
	f.answer(w, http.StatusOK, map[string]any{"items": out, "has_more": false, "next_cursor": nil, "page": 1, "size": 100})
}

func (f *fakeService) submit(w http.ResponseWriter, r *http.Request, old *fakeJob) {
	var spec client.Spec
	key := r.Header.Get("Idempotency-Key")
	var raw json.RawMessage
	if old == nil {
		if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
			f.problem(w, http.StatusBadRequest, "malformed", "")
			return
		}
		_ = json.Unmarshal(raw, &spec)
	}
	if j := f.keys[key]; j != nil {
		f.replay(w, j, string(raw))
		return
	}
	f.number++
	j := &fakeJob{id: fmt.Sprintf("j%026d", f.number), body: string(raw)}
	j.id = strings.NewReplacer("0", "a", "1", "b", "8", "c", "9", "d").Replace(j.id)
	if f.lie == "one id for all" && f.number > 1 {
		j.id = strings.NewReplacer("0", "a", "1", "b").Replace(fmt.Sprintf("j%026d", 1))
	}
	switch {
	case old != nil:
		j.retryOf = old.id
		for _, u := range old.urls[:old.done] {
			if u.State == client.URLFailed {
				j.urls = append(j.urls, u)
			}
		}
		if f.lie == "a retry of other pages" {
			j.urls = j.urls[:len(j.urls)-1]
		}
	case spec.SeedURL != "":
		j.urls = truth(f.site, true, spec.SeedURL)
	default:
		j.urls = truth(f.site, false, spec.URLs...)
	}
	if spec.Collection != nil {
		j.collection = spec.Collection.Name
	}
	if f.lie == "a page is lost" {
		j.urls = slices.DeleteFunc(j.urls, func(u client.URLInfo) bool { return u.State == client.URLFailed })
	}
	f.jobs[j.id], f.keys[key] = j, j
	if f.lie == "a new key is a replay" {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	f.answer(w, http.StatusAccepted, f.status(j))
}

func (f *fakeService) replay(w http.ResponseWriter, j *fakeJob, body string) {
	if body != j.body && f.lie != "a key takes another input" {
		f.problem(w, http.StatusConflict, "idempotency_key_reused", j.id)
		return
	}
	s := f.status(j)
	switch f.lie {
	case "a key gives another job":
		s["job_id"] = "j" + strings.Repeat("z", 26)
	case "a key is refused":
		f.problem(w, http.StatusConflict, "idempotency_key_reused", j.id)
		return
	}
	if f.lie != "a replay is not told" {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	f.answer(w, http.StatusAccepted, s)
}

func (f *fakeService) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil && f.t.Context().Err() == nil {
		f.t.Logf("answer: %v", err) // who asked has gone
	}
}

func (f *fakeService) problem(w http.ResponseWriter, status int, code, job string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "status": status, "job_id": job})
}

// stored is the look into the store of the fake.
func (f *fakeService) stored(_ context.Context, ref crawl.JobRef) (crawl.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[ref.ID]
	if j == nil || f.lie == "Redis has lost a job" {
		return crawl.Job{}, crawl.Faultf(crawl.CodeNotFound, "none")
	}
	b, err := json.Marshal(f.status(j))
	if err != nil {
		return crawl.Job{}, err
	}
	var out crawl.Job
	err = json.Unmarshal(b, &out)
	if f.lie == "Redis has other counts" {
		out.Total++
		out.Skipped++
		out.Processed++
	}
	return out, err
}

// fakeLoad is a load over the fake, with a list and a site to crawl.
func fakeLoad(t *testing.T, lie string) (l *Load, f *fakeService, list, site *job) {
	t.Helper()
	const tenant = "alpha"
	s := NewSite(4)
	s.SetHosts("127.0.0.1:1")
	f = newFake(t, s, lie)
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	l = New(Options{
		Seed: 4, API: func() string { return srv.URL }, Key: map[string]string{tenant: "key-of-alpha-0123"},
		Site: "127.0.0.1:1", Redis: crawltest.Mini(t).Client, Violate: func(text string) { t.Log(text) },
		Kills: func() int64 { return 0 },
	})
	l.stored = f.stored
	n := mapped // the smallest site with an error that stays
	for i := mapped; i < 80; i++ {
		v := s.virtual(i)
		gone := slices.ContainsFunc(v.pages, func(p *page) bool { return p.kind == kindGone })
		if gone && (n == mapped || len(v.pages) < len(s.virtual(n).pages)) {
			n = i
		}
	}
	seed := s.url(s.virtual(n).pages[0])
	site = &job{
		tenant: tenant, key: "site", kind: "site", path: "/v1/jobs", site: true, inputs: []string{seed}, maxDepth: 100,
		maxPages: 1000, body: []byte(`{"seed_url":"` + seed + `"}`),
	}
	list = &job{tenant: tenant, key: "list", kind: "list", path: "/v1/jobs", collection: "c"}
	for _, p := range s.virtual(n).pages {
		list.inputs = append(list.inputs, s.url(p))
	}
	list.body, _ = json.Marshal(client.Spec{URLs: list.inputs, Collection: &client.Collection{Name: "c"}})
	return l, f, list, site
}

func lostPage(attempts int) *client.PageError {
	return &client.PageError{SourceURL: "x", ErrorType: string(crawl.CodeWorkerLost), Attempts: attempts}
}
