package crawler

import (
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

func cookieURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func jobNo(i int) crawl.JobRef { return crawl.JobRef{Tenant: "t", ID: strconv.Itoa(i)} }

// setLine sets what an answer's Set-Cookie line says, as the fetcher reads it.
func setLine(t *testing.T, c http.CookieJar, at, line string) {
	t.Helper()
	parsed, err := http.ParseSetCookie(line)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	c.SetCookies(cookieURL(t, at), []*http.Cookie{parsed})
}

// sent returns the cookies that a request gets.
func sent(t *testing.T, c http.CookieJar, at string) string {
	t.Helper()
	var pairs []string
	for _, cookie := range c.Cookies(cookieURL(t, at)) {
		pairs = append(pairs, cookie.Name+"="+cookie.Value)
	}
	return strings.Join(pairs, "; ")
}

// inside returns how many cookies the jar of the standard library has, expired ones too.
func inside(j *jar) int {
	n := 0
	for sites := reflect.ValueOf(j.cookies).Elem().FieldByName("entries").MapRange(); sites.Next(); {
		n += sites.Value().Len()
	}
	return n
}

// counted checks the sums of all jars against what they hold, and the bounds.
func counted(t *testing.T, all *jars) {
	t.Helper()
	all.mu.Lock()
	defer all.mu.Unlock()
	total := 0
	for job, e := range all.byJob {
		j, ok := e.Value.(*jar)
		if !ok || j.job != job {
			t.Fatalf("the jar of %v is another's", job)
		}
		bytes, sites := 0, map[string]int{}
		for id, c := range j.held {
			bytes += c.bytes
			sites[id.site]++
			at := &url.URL{Scheme: "https", Host: c.host, Path: id.path}
			if c.expires.IsZero() && len(j.cookies.Cookies(at)) == 0 {
				t.Errorf("%v is counted and not there", id)
			}
		}
		for site, n := range sites {
			if n > maxSiteCookies {
				t.Errorf("%d cookies of %s, want at most %d", n, site, maxSiteCookies)
			}
		}
		if bytes != j.bytes || bytes > maxJarBytes {
			t.Errorf("jar %v: %d bytes, counted as %d, want at most %d", job, bytes, j.bytes, maxJarBytes)
		}
		if there := inside(j); there > len(j.held) {
			t.Errorf("%d cookies are there and %d counted", there, len(j.held))
		}
		total += bytes + jarCost
	}
	if total != all.bytes || total > maxJarsBytes || all.order.Len() != len(all.byJob) {
		t.Errorf("%d bytes in %d jars (%d listed), counted as %d, want at most %d",
			total, len(all.byJob), all.order.Len(), all.bytes, maxJarsBytes)
	}
}

// A site that sets new cookies of the largest size with every page, in many jobs, takes
// no more memory than the bounds say.
func TestCookieBytesBound(t *testing.T) {
	t.Parallel()
	all := newJars()
	value := strings.Repeat("x", 4000)
	for i := range 400 {
		c := all.of(jobNo(i))
		for n := range 40 {
			host := "s" + strconv.Itoa(n%7) + ".site.test"
			setLine(t, c, "http://"+host+"/", "c"+strconv.Itoa(n)+"="+value)
		}
	}
	counted(t, all)
	if got := len(all.byJob); got < 200 || got == 400 {
		t.Errorf("%d jars are left, want some, as many as there is room for", got)
	}
	first, last := all.of(jobNo(0)), all.of(jobNo(399))
	if sent(t, last, "http://s4.site.test/") == "" || sent(t, first, "http://s4.site.test/") != "" {
		t.Error("the first jar went last")
	}
}

// Small cookies cost more than their text; many of one site cost another none.
func TestCookiesOfOneSite(t *testing.T) {
	t.Parallel()
	all := newJars()
	c := all.of(jobNo(0))
	setLine(t, c, "https://good.test/", "sid=1")
	for n := range 1000 {
		setLine(t, c, "https://evil.test/", "c"+strconv.Itoa(n)+"=1")
	}
	counted(t, all)
	if got := len(c.Cookies(cookieURL(t, "https://evil.test/"))); got != maxSiteCookies {
		t.Errorf("%d cookies of one site, want %d", got, maxSiteCookies)
	}
	for n := range 1000 {
		setLine(t, c, "https://h"+strconv.Itoa(n)+".evil.test/", "c=1; Path=/"+strings.Repeat("p", 1000))
		setLine(t, c, "https://h"+strconv.Itoa(n)+".s3.amazonaws.com/", "c=1; Domain=amazonaws.com")
	}
	counted(t, all)
	if got := sent(t, c, "https://good.test/"); got != "sid=1" {
		t.Errorf("the other site has %q left", got)
	}
}

// A site that renews one cookie with every page always gets the last one back.
func TestCookieRenewal(t *testing.T) {
	t.Parallel()
	all := newJars()
	c, u := all.of(jobNo(0)), cookieURL(t, "http://site.test/a/b")
	const renewals = 1_000_000
	want, cookie := 0, []*http.Cookie{{Name: "sid", Path: "/"}}
	for i := range renewals {
		cookie[0].Value = strconv.Itoa(1_000_000 + i)
		c.SetCookies(u, cookie)
		if i == 0 {
			want = all.bytes
		}
	}
	if got := sent(t, c, "http://site.test/"); got != "sid=1999999" || all.bytes != want {
		t.Errorf("got %q and %d bytes, want the last value and %d bytes", got, all.bytes, want)
	}
	counted(t, all)
}

// What is taken, refused, replaced and given back, by domain, path and name.
func TestCookiesHeld(t *testing.T) {
	t.Parallel()
	const page = "https://www.site.test/a/b"
	big := strings.Repeat("x", maxCookieBytes)
	for name, tt := range map[string]struct {
		lines []string // after the address that sets it, and a space
		at    string
		want  string
		held  int
	}{
		"default path": {[]string{page + " a=1"}, "https://www.site.test/a/c", "a=1", 1},
		"other path":   {[]string{page + " a=1"}, "https://www.site.test/", "", 1},
		"domain":       {[]string{page + " a=1; Path=/; Domain=.Site.test"}, "https://m.site.test/", "a=1", 1},
		"host only":    {[]string{page + " a=1; Path=/"}, "https://m.www.site.test/", "", 1},
		"host, then domain": {
			[]string{page + " a=1; Path=/", page + " a=2; Path=/; Domain=www.site.test"},
			page, "a=2", 1,
		},
		"by path":           {[]string{page + " a=1; Path=/", page + " a=2; Path=/a"}, page, "a=2; a=1", 2},
		"other's domain":    {[]string{page + " a=1; Domain=other.test"}, "https://other.test/a/", "", 0},
		"public suffix":     {[]string{"https://a.co.uk/ a=1; Domain=co.uk"}, "https://b.co.uk/", "", 0},
		"secure":            {[]string{page + " a=1; Secure"}, "http://www.site.test/a/b", "", 1},
		"last dot and port": {[]string{"http://SITE.test.:81/ a=1"}, "http://site.test:82/", "a=1", 1},
		"address":           {[]string{"http://127.0.0.1:81/ a=1; Domain=127.0.0.1"}, "http://127.0.0.1/", "a=1", 1},
		"part of address":   {[]string{"http://127.0.0.1/ a=1; Domain=0.0.1"}, "http://127.0.0.1/", "", 0},
		"IPv6": {
			[]string{"http://[::1]:81/ a=1", "http://[::1]/ b=1", "http://[::1]/ a=; Max-Age=0"},
			"http://[::1]/", "b=1", 1,
		},
		"too large":      {[]string{page + " a=" + big}, page, "", 0},
		"too large path": {[]string{page + " a=1; Path=/" + big}, page + big, "", 0},
		"deleted":        {[]string{page + " a=1", page + " a=; Max-Age=0"}, page, "", 0},
		"deleted by date": {
			[]string{page + " a=1", page + " a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT"}, page, "", 0,
		},
		"domain deleted": {
			[]string{page + " a=1; Domain=site.test", page + " a=; Domain=site.test; Max-Age=0"},
			page, "", 0,
		},
		"another's deletion": {
			[]string{page + " a=1", "https://e.test/a/b a=; Domain=www.site.test; Max-Age=0"},
			page, "a=1", 1,
		},
		"domain above a public suffix": {
			[]string{
				"https://x.s3.amazonaws.com/ a=1; Domain=amazonaws.com",
				"https://y.s3.amazonaws.com/ a=2; Domain=amazonaws.com",
				"https://x.s3.amazonaws.com/ a=; Domain=amazonaws.com; Max-Age=0",
			},
			"https://y.s3.amazonaws.com/", "a=2", 1,
		},
		"age before date": {
			[]string{page + " a=1; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT"},
			page, "a=1", 1,
		},
		"quoted":              {[]string{page + ` a="1 2"`}, page, "a=1 2", 1},
		"not a site of pages": {[]string{"ftp://site.test/ a=1"}, "ftp://site.test/", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := newJars()
			c := all.of(jobNo(0))
			for _, line := range tt.lines {
				at, line, _ := strings.Cut(line, " ")
				setLine(t, c, at, line)
			}
			held := 0
			if all.order.Len() > 0 {
				held = len(all.use(jobNo(0)).held)
			}
			if got := sent(t, c, tt.at); got != tt.want || held != tt.held {
				t.Errorf("sent %q with %d held, want %q and %d", got, held, tt.want, tt.held)
			}
			counted(t, all)
		})
	}
}

// Cookies that have expired make room before any other, and idle jars go (SEC-12: the
// jar of another job is another).
func TestCookiesGoWithTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newJars()
		a, b := all.of(jobNo(0)), all.of(jobNo(1))
		setLine(t, a, "http://site.test/", "sid=a")
		for n := range maxSiteCookies - 1 {
			setLine(t, a, "http://site.test/", "c"+strconv.Itoa(n)+"=1; Max-Age=60")
		}
		setLine(t, b, "http://site.test/", "sid=b")
		<-time.After(time.Minute)
		setLine(t, a, "http://site.test/", "d=1")
		got := []string{sent(t, a, "http://site.test/"), sent(t, b, "http://site.test/")}
		if diff := cmp.Diff([]string{"sid=a; d=1", "sid=b"}, got); diff != "" {
			t.Errorf("after the cookies expired (-want +got):\n%s", diff)
		}
		counted(t, all)

		<-time.After(jarIdle - time.Second)
		sent(t, b, "http://site.test/")
		<-time.After(time.Second)
		all.of(jobNo(2))
		got = []string{sent(t, a, "http://site.test/"), sent(t, b, "http://site.test/")}
		if diff := cmp.Diff([]string{"", "sid=b"}, got); diff != "" {
			t.Errorf("after a's jar was idle (-want +got):\n%s", diff)
		}
		counted(t, all)
	})
}

// The jar that was used longest ago goes first; reading is use. A job whose jar went may
// start another.
func TestJarOrder(t *testing.T) {
	t.Parallel()
	all := newJars()
	full := strings.Repeat("x", 4000)
	fill := func(i int) {
		c := all.of(jobNo(i))
		for n := range 14 {
			setLine(t, c, "http://site.test/", "c"+strconv.Itoa(n)+"="+full)
		}
	}
	const (
		jarBytes = jarCost + 14*(4000+cookieCost) // and a little more
		room     = maxJarsBytes/jarBytes - 2
	)
	for i := range room {
		fill(i)
	}
	first := all.of(jobNo(1))
	sent(t, first, "http://site.test/")
	for i := range 6 {
		fill(room + i)
	}
	has := func(i int) bool { return all.byJob[jobNo(i)] != nil }
	if has(0) || !has(1) || has(2) || !has(room-1) || !has(room+5) {
		t.Errorf("left of 0, 1, 2, %d, %d: %v %v %v %v %v", room-1, room+5,
			has(0), has(1), has(2), has(room-1), has(room+5))
	}
	gone := jobCookies{all: all, job: jobNo(0)}
	setLine(t, gone, "http://site.test/", "again=1")
	if got := sent(t, gone, "http://site.test/"); got != "again=1" {
		t.Errorf("a job whose jar went is sent %q", got)
	}
	counted(t, all)
}

// Cookies of many jobs are set, read and dropped at once.
func TestCookiesConcurrently(t *testing.T) {
	t.Parallel()
	all := newJars()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				c, site := all.of(jobNo(i)), "http://h"+strconv.Itoa(g%3)+".test/"
				for n := range 4 {
					setLine(t, c, site, "c"+strconv.Itoa(g*4+n)+"="+strings.Repeat("x", 4000))
				}
				setLine(t, c, site, "c"+strconv.Itoa(g*4)+"=; Max-Age=0")
				sent(t, c, site)
			}
		})
	}
	wg.Wait()
	counted(t, all)
}
