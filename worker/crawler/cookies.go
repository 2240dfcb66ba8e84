package crawler

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"sync"

	"golang.org/x/net/publicsuffix"

	"example.com/trawl/pkg/crawl"
)

const (
	// maxJars bounds the jobs whose cookies this process keeps. One that is beyond it
	// starts without, as every job does on another worker.
	maxJars = 256
	// maxCookies bounds what one job may be given to keep: a hostile site sets new ones
	// with every page, and a jar of the standard library has no bound.
	maxCookies = 1000
)

// jars keeps the cookies of jobs, each in a jar of its own, over their slices on this
// process.
type jars struct {
	mu    sync.Mutex
	byJob map[crawl.JobRef]*jar
	order []crawl.JobRef // the longest unused first
}

func newJars() *jars { return &jars{byJob: map[crawl.JobRef]*jar{}} }

// of returns the jar of a job.
func (j *jars) of(job crawl.JobRef) http.CookieJar {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := j.byJob[job]
	if found == nil {
		found = newJar()
		j.byJob[job] = found
	} else {
		for i, other := range j.order {
			if other == job {
				j.order = append(j.order[:i], j.order[i+1:]...)
				break
			}
		}
	}
	if j.order = append(j.order, job); len(j.order) > maxJars {
		delete(j.byJob, j.order[0])
		j.order = j.order[1:]
	}
	return found
}

// jar is a cookie jar that takes only so many.
type jar struct {
	*cookiejar.Jar

	mu   sync.Mutex
	left int
}

func newJar() *jar {
	j, err := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	if err != nil { // it returns none
		panic(err)
	}
	return &jar{Jar: j, left: maxCookies}
}

// SetCookies implements http.CookieJar.
func (j *jar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	j.mu.Lock()
	cookies = cookies[:min(len(cookies), j.left)]
	j.left -= len(cookies)
	j.mu.Unlock()
	j.Jar.SetCookies(u, cookies)
}
