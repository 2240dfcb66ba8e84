package crawler

import (
	"container/list"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"

	"example.com/trawl/pkg/crawl"
)

// A jar of the standard library has no bound, and a hostile site sets new cookies with
// every page; so what is held is counted, in bytes.
const (
	// maxJarsBytes bounds the cookies of all jobs in this process. The jar that was used
	// longest ago goes first; its job goes on without, as every job does on another worker.
	maxJarsBytes = 16 << 20
	// maxJarBytes bounds the cookies of one job.
	maxJarBytes = 64 << 10
	// maxCookieBytes bounds one cookie with its domain and path (RFC 6265 section 6.1).
	maxCookieBytes = 4 << 10
	// maxSiteCookies bounds the cookies of one site (a registrable domain) in a jar, as
	// browsers do.
	maxSiteCookies = 180
	// jarIdle is how long a jar is kept that no request uses: its job has ended, or has
	// gone to another worker.
	jarIdle = time.Hour

	// cookieCost and jarCost are about what a cookie and a jar cost beside their text. With
	// cookies of a few bytes the heap grows by up to twice what is counted, since there are
	// two tables of them.
	cookieCost = 256
	jarCost    = 1 << 10
)

// jars keeps the cookies of jobs, each in a jar of its own, over their slices on this
// process. It may be used from many goroutines.
type jars struct {
	mu    sync.Mutex
	byJob map[crawl.JobRef]*list.Element
	order list.List // of *jar, the longest unused first
	bytes int       // of all jars
}

func newJars() *jars { return &jars{byJob: map[crawl.JobRef]*list.Element{}} }

// of returns the cookies of a job.
func (j *jars) of(job crawl.JobRef) http.CookieJar {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.use(job)
	j.trim()
	return jobCookies{all: j, job: job}
}

// use returns the jar of a job, nil if there is none, and notes its use.
func (j *jars) use(job crawl.JobRef) *jar {
	found := j.byJob[job]
	if found == nil {
		return nil
	}
	j.order.MoveToBack(found)
	used := found.Value.(*jar) //nolint:forcetypeassert // The list holds nothing else.
	used.lastUse = time.Now()
	return used
}

// add makes a jar for a job that has none.
func (j *jars) add(job crawl.JobRef) *jar {
	added := newJar(job)
	j.byJob[job] = j.order.PushBack(added)
	j.bytes += jarCost
	return added
}

// trim drops the jars that are idle or beyond the bound, the longest unused first.
func (j *jars) trim() {
	for first := j.order.Front(); first != nil; first = j.order.Front() {
		oldest := first.Value.(*jar) //nolint:forcetypeassert // The list holds nothing else.
		if j.bytes <= maxJarsBytes && time.Since(oldest.lastUse) < jarIdle {
			return
		}
		j.order.Remove(first)
		delete(j.byJob, oldest.job)
		j.bytes -= jarCost + oldest.bytes
	}
}

// jobCookies is the [http.CookieJar] of one job. It holds no jar itself, so that one that
// was dropped is not kept by a slice that still runs.
type jobCookies struct {
	all *jars
	job crawl.JobRef
}

// Cookies implements [http.CookieJar].
func (c jobCookies) Cookies(u *url.URL) []*http.Cookie {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	used := c.all.use(c.job)
	if used == nil {
		return nil
	}
	return used.cookies.Cookies(&url.URL{Scheme: u.Scheme, Host: cookieHost(u), Path: u.Path})
}

// SetCookies implements [http.CookieJar].
func (c jobCookies) SetCookies(u *url.URL, cookies []*http.Cookie) {
	host := cookieHost(u)
	if host == "" || len(cookies) == 0 || u.Scheme != "http" && u.Scheme != "https" {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	used := c.all.use(c.job)
	if used == nil {
		used = c.all.add(c.job)
	}
	before := used.bytes
	for _, cookie := range cookies {
		used.set(u, host, cookie)
	}
	c.all.bytes += used.bytes - before
	c.all.trim()
}

// jar is a cookie jar that knows what it holds: the one of the standard library decides
// which cookies a request gets, and held tells which there are and what they cost.
type jar struct {
	job     crawl.JobRef
	cookies *cookiejar.Jar
	held    map[cookieID]heldCookie
	bytes   int    // of held
	sets    uint64 // how many cookies were taken: the clock of heldCookie.set
	lastUse time.Time
}

// cookieID is what tells one cookie from another (RFC 6265 section 5.3, step 11). The jar
// of the standard library keeps those of each site apart, even if the domain is the same:
// two buckets below s3.amazonaws.com, a public suffix, may both set one for amazonaws.com.
type cookieID struct{ site, domain, path, name string }

// heldCookie is what the bounds ask for, and what a deletion needs.
type heldCookie struct {
	host    string // that set it
	bytes   int
	set     uint64
	expires time.Time // zero for a session's cookie
}

func newJar(job crawl.JobRef) *jar {
	// New returns no error (see its source), and has none to return.
	cookies, _ := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	return &jar{job: job, cookies: cookies, held: map[cookieID]heldCookie{}, lastUse: time.Now()}
}

// set takes a cookie that an answer of u set: a new one, a renewal, which replaces, or a
// deletion. One that is too large, or of a domain that host must not set, is not taken.
func (j *jar) set(u *url.URL, host string, c *http.Cookie) {
	domain, ok := cookieDomain(host, c.Domain)
	path := cookiePath(u, c.Path)
	size := len(host) + len(path) + len(c.Name) + len(c.Value)
	if !ok || size > maxCookieBytes {
		return
	}
	id := cookieID{site: siteOf(host), domain: domain, path: path, name: c.Name}
	now := time.Now()
	expires := c.Expires
	if c.MaxAge != 0 {
		expires = now.Add(time.Duration(c.MaxAge) * time.Second)
	}
	if c.MaxAge < 0 || !expires.IsZero() && !expires.After(now) {
		j.drop(id)
		return
	}

	// What was read is part of the whole line of the header, which must not stay with it.
	host = strings.Clone(host)
	id = cookieID{
		site: strings.Clone(id.site), domain: strings.Clone(domain), path: strings.Clone(path), name: strings.Clone(c.Name),
	}
	kept := &http.Cookie{
		Name: id.name, Value: strings.Clone(c.Value), Quoted: c.Quoted, Path: id.path, Expires: expires,
		Secure: c.Secure, HttpOnly: c.HttpOnly, SameSite: c.SameSite,
	}
	if c.Domain != "" {
		kept.Domain = id.domain
	}
	j.cookies.SetCookies(&url.URL{Scheme: u.Scheme, Host: host, Path: "/"}, []*http.Cookie{kept})
	j.sets++
	size += cookieCost
	j.bytes += size - j.held[id].bytes
	j.held[id] = heldCookie{host: host, bytes: size, set: j.sets, expires: expires}
	j.trim(id.site, now)
}

// drop deletes a cookie, if it is there, and gives its room back.
func (j *jar) drop(id cookieID) {
	old, ok := j.held[id]
	if !ok {
		return
	}
	gone := &http.Cookie{Name: id.name, Path: id.path, MaxAge: -1}
	if id.domain != old.host {
		gone.Domain = id.domain
	}
	j.cookies.SetCookies(&url.URL{Scheme: "https", Host: old.host, Path: "/"}, []*http.Cookie{gone})
	delete(j.held, id)
	j.bytes -= old.bytes
}

// trim keeps the jar within its bounds after a cookie of site was taken. What has expired
// goes first; then, of a site with too many, or else of the one that holds most, the cookie
// that was set longest ago, so that a site with many costs another of the job nothing.
func (j *jar) trim(site string, now time.Time) {
	count := 0
	for id := range j.held {
		if id.site == site {
			count++
		}
	}
	if count <= maxSiteCookies && j.bytes <= maxJarBytes {
		return
	}
	for id, c := range j.held {
		if c.expires.IsZero() || c.expires.After(now) {
			continue
		}
		if id.site == site {
			count--
		}
		j.drop(id)
	}
	if count > maxSiteCookies {
		j.drop(j.oldest(site))
	}
	for j.bytes > maxJarBytes {
		j.drop(j.oldest(j.largest()))
	}
}

// oldest returns the cookie of a site that was set longest ago.
func (j *jar) oldest(site string) cookieID {
	var oldest cookieID
	least := j.sets + 1
	for id, c := range j.held {
		if id.site == site && c.set < least {
			oldest, least = id, c.set
		}
	}
	return oldest
}

// largest returns the site whose cookies take most room; of equals, the first by name.
func (j *jar) largest() string {
	sizes := map[string]int{}
	for id, c := range j.held {
		sizes[id.site] += c.bytes
	}
	largest := ""
	for site, size := range sizes {
		if size > sizes[largest] || size == sizes[largest] && site < largest {
			largest = site
		}
	}
	return largest
}

// cookieHost returns the host of u as cookies are kept by it: in small letters, without
// port and last dot.
func cookieHost(u *url.URL) string {
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// cookiePath returns the path of a cookie that an answer of u set with a Path of attribute
// (RFC 6265 sections 5.1.4 and 5.2.4).
func cookiePath(u *url.URL, attribute string) string {
	if strings.HasPrefix(attribute, "/") {
		return attribute
	}
	last := strings.LastIndexByte(u.Path, '/')
	if last <= 0 || u.Path[0] != '/' {
		return "/"
	}
	return u.Path[:last]
}

// cookieDomain returns the domain of a cookie that host set with a Domain of attribute, and
// whether host may set it (RFC 6265 section 5.3, steps 4 to 6). It takes no more than the
// jar of the standard library does, so that a cookie that is counted is there.
func cookieDomain(host, attribute string) (domain string, ok bool) {
	if attribute == "" || attribute == host {
		return host, true
	}
	domain = strings.ToLower(strings.TrimPrefix(attribute, "."))
	if domain == host {
		return domain, !isAddress(host)
	}
	if domain == "" || isAddress(host) || !strings.HasSuffix(host, "."+domain) {
		return "", false
	}
	suffix, _ := publicsuffix.PublicSuffix(domain)
	return domain, domain != suffix
}

// siteOf returns the registrable domain of a host; the host itself if it has none.
func siteOf(host string) string {
	if isAddress(host) {
		return host
	}
	site, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return site
}

func isAddress(host string) bool { return strings.Contains(host, ":") || net.ParseIP(host) != nil }
