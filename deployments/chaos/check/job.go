package check

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

// job is one submission, and what is known of what became of it.
type job struct {
	tenant, key, kind string
	path              string // of the call that makes it
	body              []byte
	retryOf           *job

	// What the model needs.
	site, sitemap bool
	inputs        []string
	maxDepth      int
	maxPages      int64
	collection    string

	sent atomic.Int64 // how often it was submitted

	// reading is held over one read of the status by HTTP, so that reads come one behind the
	// other; looking over one by Redis.
	reading, looking sync.Mutex
	byHTTP, byRedis  observer

	epoch atomic.Int64 // see observer.see
	busy  atomic.Bool  // a control call is on its way

	mu        sync.Mutex
	id        string
	known     *status // the last that was read by HTTP
	resumeAt  time.Time
	cancelled bool // somebody asked for it
	fuzzy     bool // a resume was sent more than once: one may arrive late
}

// name is the id, or the key while there is none.
func (j *job) name() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.id == "" {
		return "of key " + j.key
	}
	return j.id
}

// state is the last that was read; empty before the first read.
func (j *job) state() crawl.State {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.known == nil {
		return ""
	}
	return j.known.State
}

func (j *job) ended() bool { return j.state().Terminal() }

// status is the last that was read; nil before.
func (j *job) status() *status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.known
}

func (j *job) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
}

// collections of each tenant, which its jobs share.
const collections = 3

// draft makes the next job of a tenant.
func (l *Load) draft(tenant string, n int, r *rand.Rand) *job {
	j := &job{
		tenant: tenant, key: fmt.Sprintf("chaos-%d-%s-%d", l.o.Seed, tenant, n), path: "/v1/jobs",
		maxDepth: crawl.MaxDepthBound, maxPages: 1000,
	}
	spec := client.Spec{Concurrency: 4 + r.IntN(12)}
	at := r.IntN(100)
	switch {
	case at < 35:
		j.kind = "list"
		l.list(j, &spec, r)
	case at < 45:
		j.kind, j.sitemap = "sitemap", true
		l.seed(j, &spec, r.IntN(mapped))
	default:
		j.kind = "site"
		l.seed(j, &spec, l.number(r))
	}
	if j.kind == "site" {
		switch {
		case at < 60:
			j.kind, j.maxPages = "limited", int64(5+r.IntN(26))
		case at < 67:
			j.kind, j.maxDepth = "shallow", 1+r.IntN(3)
		case at < 72:
			j.kind, spec.TimeLimit = "hurried", time.Duration(1+r.IntN(4))*time.Second
		}
	}
	if j.site {
		spec.MaxPages, spec.MaxDepth, spec.Scope = j.maxPages, &j.maxDepth, client.ScopePrefix
		spec.Sitemap = client.SitemapSkip
		if j.sitemap {
			spec.Sitemap = client.SitemapInclude
		}
	}
	if r.IntN(4) == 0 {
		j.collection = "chaos-" + strconv.Itoa(r.IntN(collections))
		spec.Collection = &client.Collection{Name: j.collection}
	}
	if r.IntN(4) == 0 {
		spec.Formats = []client.ContentFormat{client.ContentMarkdown, client.ContentLinks}
	}
	body, err := json.Marshal(spec)
	if err != nil {
		l.violate(j, "a spec that is none", "%v", err) // a defect of this package
	}
	j.body = body
	return j
}

// number draws a virtual site: mostly one that nobody asked for yet, whose errors are still to come.
func (l *Load) number(r *rand.Rand) int {
	if used := int(l.sites.Load()); used > 0 && r.IntN(5) == 0 {
		return mapped + r.IntN(used)
	}
	return mapped + int(l.sites.Add(1)) - 1
}

func (l *Load) seed(j *job, spec *client.Spec, n int) {
	j.site = true
	j.inputs = []string{l.site.url(l.site.virtual(n).pages[0])}
	spec.SeedURL = j.inputs[0]
}

// list draws URLs of up to three virtual sites, some of them twice.
func (l *Load) list(j *job, spec *client.Spec, r *rand.Rand) {
	seen := map[string]bool{}
	for range 1 + r.IntN(3) {
		pages := l.site.virtual(l.number(r)).pages
		for range 3 + r.IntN(20) {
			u := l.site.url(pages[r.IntN(len(pages))])
			spec.URLs = append(spec.URLs, u)
			if !seen[u] {
				seen[u] = true
				j.inputs = append(j.inputs, u)
			}
		}
	}
}
