package check

import (
	"fmt"
	"slices"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

// Outcomes that a page can rightly have.
const (
	wantAccepted = "accepted" // or an alias, where another URL ended at the same page first
	wantFailed   = "failed"
	wantSkipped  = "skipped"
)

// want is what a page must become in a crawl in which every error that passes has passed.
type want struct {
	state  string
	reason string // of a failed or skipped one
}

// want answers it for a page; site tells a crawl of a site, which stays below its seed, from a list.
func (s *Site) want(p *page, site bool) want {
	switch p.kind {
	case kindGone:
		return want{wantFailed, string(crawl.HTTPCode(404))}
	case kindForbidden:
		return want{wantSkipped, string(crawl.SkipRobots)}
	case kindNoIndex:
		return want{wantSkipped, string(crawl.SkipNoIndex)}
	case kindAcross:
		if site {
			return want{wantSkipped, string(crawl.SkipRedirectOutOfScope)}
		}
		return want{state: wantAccepted}
	default:
		return want{state: wantAccepted}
	}
}

// Class is the outcome that a crawl must give a URL.
type Class string

// The classes of outcomes.
const (
	MustAccept     Class = "accepted_or_alias"
	MustFail       Class = "failed"
	MustSkip       Class = "skipped"
	MayFailAtFault Class = "accepted_alias_or_failed" // its errors pass, unless tries are lost to faults meanwhile
)

// Expect answers each URL that a crawl of the given inputs must find, with its class. A site crawl
// begins at the one input, stays below it, and reads the sitemap if told so; without site the inputs
// are all there is. It leaves no room for max_pages and max_depth. Whatever faults do to the network
// can make any class a failure with a reason of the network.
func (s *Site) Expect(site, sitemap bool, inputs ...string) map[string]Class {
	out := map[string]Class{}
	var todo []*page
	add := func(p *page) {
		if _, ok := out[s.url(p)]; !ok {
			out[s.url(p)] = s.class(p, site)
			todo = append(todo, p)
		}
	}
	for _, u := range inputs {
		p := s.find(u)
		if p == nil {
			continue
		}
		add(p)
		if site && sitemap {
			s.named(p, add)
		}
	}
	for ; site && len(todo) > 0; todo = todo[1:] {
		if p := todo[0]; s.want(p, site).state == wantAccepted || p.kind == kindNoIndex {
			for _, to := range s.linksOf(s.final(p)) {
				add(to)
			}
		}
	}
	return out
}

// named hands over the pages of the virtual site of p that the sitemap names.
func (s *Site) named(p *page, add func(*page)) {
	for _, q := range s.listed(s.hostOf(p.site)) {
		if q.site == p.site {
			add(q)
		}
	}
}

func (s *Site) class(p *page, site bool) Class {
	switch w := s.want(p, site); {
	case w.state == wantFailed:
		return MustFail
	case w.state == wantSkipped:
		return MustSkip
	case p.kind == kindFlaky || p.kind == kindDrops:
		return MayFailAtFault
	default:
		return MustAccept
	}
}

// passing are the errors that the network, a proxy between, or the loss of workers can make of any
// page: it ends as failed for a reason that is told, and is not lost.
var passing = []string{
	string(crawl.CodeTimeout), string(crawl.CodeConnection), string(crawl.CodeTruncated),
	string(crawl.CodeBadResponse), string(crawl.CodeWorkerLost),
}

// wrong says what is wrong with the outcome of a page; empty for nothing.
func (s *Site) wrong(p *page, site bool, u *client.URLInfo) string {
	w := s.want(p, site)
	reason := u.Reason
	switch u.State {
	case client.URLCancelled:
		return "" // whether its job may cancel is another question
	case client.URLAccepted:
		if w.state != wantAccepted {
			break
		}
		if f := s.url(s.final(p)); u.FinalURL != f {
			return fmt.Sprintf("%s ended at %s, want %s", u.URL, u.FinalURL, f)
		}
		return ""
	case client.URLSkipped:
		switch {
		case reason == string(crawl.SkipRobotsUnreachable), w.state == wantSkipped && reason == w.reason:
			return ""
		case reason == string(crawl.SkipAlias) && w.state == wantAccepted:
			return ""
		}
	case client.URLFailed:
		switch {
		case p.kind == kindForbidden && reason != string(crawl.CodeWorkerLost): // it is never asked for
		case slices.Contains(passing, reason), w.state == wantFailed && reason == w.reason:
			return ""
		case p.kind == kindFlaky && reason == string(crawl.HTTPCode(p.status)):
			return ""
		}
	default:
	}
	return fmt.Sprintf("%s, a page that is %s, is %s %s", u.URL, p.kind, u.State, reason)
}

// crawlOf is what is known of an ended job that the model judges.
type crawlOf struct {
	site     bool
	sitemap  bool // every page that the sitemap names was to be found
	inputs   []string
	maxDepth int
	complete bool // it was not cut short
	full     bool // a link was refused for max_pages
	urls     []client.URLInfo
}

// judge compares what became of the URLs of a job with what the site has: which are lost, that is,
// in no outcome at all although an input, a page that was read or a sitemap named them; which are
// in two; and what else is wrong, in words.
func (s *Site) judge(c *crawlOf) (lost, double, faults []string) {
	known := make(map[string]*client.URLInfo, len(c.urls))
	finals := map[string]string{}
	for i := range c.urls {
		u := &c.urls[i]
		if known[u.URL] != nil {
			double = append(double, u.URL)
			continue
		}
		known[u.URL] = u
		if u.State == client.URLAccepted {
			if first, ok := finals[u.FinalURL]; ok {
				double = append(double, fmt.Sprintf("%s (recorded for %s and %s)", u.FinalURL, first, u.URL))
			}
			finals[u.FinalURL] = u.URL
		}
	}
	named := map[string]bool{} // by whom is known
	name := func(p *page, must bool) {
		u := s.url(p)
		named[u] = true
		if known[u] == nil && must && !slices.Contains(lost, u) {
			lost = append(lost, u)
		}
	}
	for _, in := range c.inputs {
		if p := s.find(in); p != nil {
			name(p, true)
			if c.site {
				s.named(p, func(q *page) { name(q, c.complete && c.sitemap && !c.full) })
			}
		}
	}
	for u, info := range known {
		p := s.find(u)
		if p == nil {
			faults = append(faults, u+" is no page of the site")
			continue
		}
		if text := s.wrong(p, c.site, info); text != "" {
			faults = append(faults, text)
		}
		if info.Reason == string(crawl.SkipAlias) && info.State == client.URLSkipped && finals[info.FinalURL] == "" {
			faults = append(faults, fmt.Sprintf("%s is an alias of %s, which nobody recorded", u, info.FinalURL))
		}
		if c.site && read(info) {
			for _, to := range s.linksOf(s.final(p)) {
				name(to, c.complete && !c.full && info.Depth < c.maxDepth)
			}
		}
	}
	for u := range known {
		if !named[u] {
			faults = append(faults, u+" is in the job, and nothing that was read names it")
		}
	}
	slices.Sort(lost)
	slices.Sort(faults)
	return lost, double, faults
}

// read reports whether the bytes of a page were read, so that its links are the job's.
func read(u *client.URLInfo) bool {
	return u.State == client.URLAccepted ||
		u.State == client.URLSkipped && u.Reason == string(crawl.SkipNoIndex)
}
