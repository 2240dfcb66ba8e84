// Package check is what a chaos run of Trawl works on and judges by: a web site whose every
// page, delay and error follows from a seed ([Site]), callers of several tenants that submit,
// pause, resume, cancel and retry jobs over HTTP ([Load]), and the promises that are looked at
// all the while and, job by job and URL by URL, at the end ([Report]).
//
// It throws no faults at processes and links: that is the harness, which owns them. It must
// therefore stand whatever the harness does: every call is repeated until it is answered, and
// an outage is never a violation. What was answered once is.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// Options of a [Load].
type Options struct {
	// Seed decides the site and what the callers ask for; when they do it depends on the
	// machine. The handler that serves the site is NewSite of the same seed.
	Seed int64
	// API answers the base URL of an API process to use for the next call, such as
	// http://127.0.0.1:8008, behind a proxy or not. It is called from many goroutines.
	API func() string
	// Key has the API key of each tenant; there is a share of the load for each.
	Key map[string]string
	// Site is the host:port at which workers reach the site, behind a proxy or not.
	Site string
	// Sites are more such addresses of the same site, so that several hosts share the politeness
	// of the cluster; nil for Site alone.
	Sites []string
	// Redis is a look into Redis without faults on its link, for checks alone: nothing is written.
	Redis redis.UniversalClient
	// Log tells progress to a person; nil tells nothing.
	Log func(format string, args ...any)
	// Violate is called with each violation as it is found, in words, by any goroutine; nil only
	// collects them for the report.
	Violate func(text string)
	// Quiet reports whether no fault of Redis, of the API or of their links is on, nor was in the
	// last moments: only then bounds of time are promises. Nil means always.
	Quiet func() bool
	// Kills answers how often a worker was killed or stalled so far; nil means that it is not known.
	Kills func() int64
	// InFlight is how many jobs are kept in flight, of all tenants; 0 means 16.
	InFlight int
	// Server is the handler that serves the site, for what it saw of politeness; nil leaves that out.
	Server *Site
}

const (
	defaultInFlight = 16

	// cancelBound is promise 6 and pauseBound what the API says of pause; slack is what a busy
	// machine and the look itself may add.
	cancelBound = 5 * time.Second
	pauseBound  = 5 * time.Second
	slack       = 2 * time.Second

	// maxTold bounds the violations that a report has in words.
	maxTold = 1000
)

// Load is the callers of a chaos run, and the judges of what they are answered.
type Load struct {
	o       Options
	site    *Site
	stored  func(context.Context, crawl.JobRef) (crawl.Job, error) // the look into Redis
	log     func(string, ...any)
	tenants []string // in a fixed order
	clients []*http.Client
	next    atomic.Int64 // client to use
	sites   atomic.Int64 // virtual sites that were given out

	mu         sync.Mutex
	jobs       []*job
	byID       map[string]*job
	unanswered []*job // submissions that were sent and not answered yet
	told       map[string]bool
	violations []string
	figures    figures
	run        *running // nil unless Run or Finish are at work
}

// figures are counted while the load runs; Load.mu guards them.
type figures struct {
	violations, lost, double      int
	reads, looks, pages           int64
	outages                       int64
	submitted, repeats, replays   int64
	controls, effective           map[string]int64
	cancels, faultyCancels        int64
	longestCancel, longestFaulty  time.Duration
	longestPause, longestPauseBad time.Duration
}

// New makes a load. It opens nothing but connections as they are needed, and calls nobody yet.
func New(o Options) *Load {
	o.InFlight = cmp.Or(o.InFlight, defaultInFlight)
	if o.Quiet == nil {
		o.Quiet = func() bool { return true }
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Violate == nil {
		o.Violate = func(string) {}
	}
	l := &Load{
		o: o, site: NewSite(o.Seed), stored: store.New(o.Redis, store.Options{}).Job, log: o.Log,
		byID: map[string]*job{}, told: map[string]bool{},
		figures: figures{controls: map[string]int64{}, effective: map[string]int64{}},
	}
	hosts := append([]string{o.Site}, o.Sites...)
	l.site.SetHosts(hosts...)
	if o.Server != nil {
		o.Server.SetHosts(hosts...)
	}
	for tenant := range o.Key {
		l.tenants = append(l.tenants, tenant)
	}
	slices.Sort(l.tenants)
	for range connections {
		l.clients = append(l.clients, newHTTPClient())
	}
	return l
}

// violate reports that a promise was broken, once for each what of a job; j is nil for none. It
// answers whether that is new.
func (l *Load) violate(j *job, what, format string, args ...any) bool {
	text := what + ": " + fmt.Sprintf(format, args...)
	key := what
	if j != nil {
		text = fmt.Sprintf("%s (%s job %s of %s)", text, j.kind, j.name(), j.tenant)
		key += " " + j.key
	} else {
		key = text
	}
	l.mu.Lock()
	again := l.told[key]
	if !again {
		l.told[key] = true
		l.figures.violations++
		if len(l.violations) < maxTold {
			l.violations = append(l.violations, text)
		}
	}
	l.mu.Unlock()
	if !again {
		l.o.Violate(text)
	}
	return !again
}

// double reports a page that was recorded twice.
func (l *Load) double(j *job, what string) {
	if l.violate(j, "double "+what, "it is recorded twice") {
		l.count(func(f *figures) { f.double++ })
	}
}

// lost reports a page that is in no outcome.
func (l *Load) lost(j *job, what string) {
	if l.violate(j, "lost "+what, "it is in no outcome") {
		l.count(func(f *figures) { f.lost++ })
	}
}

// count changes the figures.
func (l *Load) count(f func(*figures)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.figures)
}

// all answers the jobs that were accepted so far.
func (l *Load) all() []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.jobs)
}

// live answers those of them that have not ended as far as is known.
func (l *Load) live() []*job {
	return slices.DeleteFunc(l.all(), func(j *job) bool { return j.ended() })
}

// Report is what a run found. Durations are in seconds.
type Report struct {
	Jobs         int              `json:"jobs"`
	JobsByState  map[string]int   `json:"jobs_by_state"`
	Pages        int64            `json:"pages"` // URLs admitted, of all jobs
	PagesByState map[string]int64 `json:"pages_by_state"`
	FailedByType map[string]int64 `json:"failed_by_type"`
	Records      int64            `json:"records"`
	WorkerLost   int64            `json:"worker_lost"` // pages that failed as worker_lost
	Items        int64            `json:"items"`       // of collections

	Lost       int      `json:"pages_lost"`   // pages of the site's model in no outcome
	Double     int      `json:"pages_double"` // pages recorded twice, or in two outcomes
	Violated   int      `json:"violations"`   // of any promise, lost and double included
	Violations []string `json:"violation_texts"`

	Submissions int64            `json:"submissions"`
	Repeats     int64            `json:"submissions_repeated"` // since no answer came, or one that asks for it
	Replays     int64            `json:"submissions_replayed"`
	StatusReads int64            `json:"status_reads"`
	RedisLooks  int64            `json:"redis_looks"`
	RecordPages int64            `json:"record_pages_read_twice"`
	Outages     int64            `json:"calls_unanswered"` // no answer, or 503
	Controls    map[string]int64 `json:"controls"`         // thrown by Do
	Effective   map[string]int64 `json:"controls_effective"`

	Cancels             int64   `json:"cancels"` // measured without faults
	LongestCancel       float64 `json:"longest_cancel_s"`
	CancelsUnderFaults  int64   `json:"cancels_under_faults"`
	LongestCancelFaulty float64 `json:"longest_cancel_under_faults_s"`
	LongestPause        float64 `json:"longest_pause_s"`
	LongestPauseFaulty  float64 `json:"longest_pause_under_faults_s"`

	// What is left behind when all jobs have ended. A ring that a killed worker held, and one
	// that waits for its next try, die out by themselves within minutes.
	QueueLeft map[string]int64 `json:"queue_left"`

	// What the site saw: over all hosts the most requests of one at a time, and the shortest time
	// between two starts at one.
	SiteRequests   int64   `json:"site_requests"`
	SiteMostAtOnce int     `json:"site_most_at_once"`
	SiteLeastStart float64 `json:"site_least_start_distance_s"`
}

// errUnanswered is that of a call that was given up, because its time was over.
var errUnanswered = errors.New("not answered in time")
