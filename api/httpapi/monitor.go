package httpapi

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/queue"
)

// Addresses of the monitor.
const (
	monitorPath   = "/monitor"
	monitorHome   = monitorPath + "/"
	monitorLogin  = monitorPath + "/login"
	monitorLogout = monitorPath + "/logout"
	monitorAPI    = monitorPath + "/api/"
	monitorStatic = monitorPath + "/static/" // files whose names have their digest in them
)

const (
	// maxMonitorBody is what asynqmon itself takes: the ids of some thousand tasks.
	maxMonitorBody = 1 << 20
	// maxMonitorPage bounds the tasks of one answer, to what the page asks for at most: asynqmon
	// would list as many as it is asked for, and reads the payloads of all, which others' tasks
	// may have of megabytes.
	maxMonitorPage = 100
	// maxMonitorPages keeps what asynqmon multiplies within its integers.
	maxMonitorPages = 1_000_000
)

// monitorMethods are those that anything of the monitor takes.
var monitorMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete}

// monitor is asynqmon behind the admin key. It shows the queue, and changes it when write is set;
// what it changes there the store heals, for the queue is a doorbell only.
type monitor struct {
	asynqmon http.Handler
	redis    redis.UniversalClient
	write    bool
	sessions sessions
	origin   *http.CrossOriginProtection
	index    []byte // the page, with noncePlace where its nonce belongs
	scripts  string // what the policy of the page says of its scripts
}

// sharedRedis hands asynqmon a client of ours. asynqmon.New starts nothing on it, and only its
// Close, which nobody calls, would close it.
type sharedRedis struct{ client redis.UniversalClient }

// MakeRedisClient implements asynq.RedisConnOpt.
func (s sharedRedis) MakeRedisClient() any { return s.client }

// newMonitor returns the monitor of the queue on rdb.
func newMonitor(rdb redis.UniversalClient, write bool, adminKey string) (*monitor, error) {
	sessions, err := newSessions(adminKey)
	if err != nil {
		return nil, err
	}
	m := &monitor{
		redis: rdb, write: write, sessions: sessions, origin: http.NewCrossOriginProtection(),
		asynqmon: asynqmon.New(asynqmon.Options{
			RootPath: monitorPath, RedisConnOpt: sharedRedis{rdb}, ReadOnly: !write,
			PayloadFormatter: asynqmon.PayloadFormatterFunc(queue.Describe),
			ResultFormatter:  asynqmon.ResultFormatterFunc(describeResult),
		}),
	}
	r, err := http.NewRequest(http.MethodGet, monitorHome, http.NoBody) //nolint:noctx // answered in this process, at once
	if err != nil {
		return nil, err
	}
	page := newRecorder()
	m.asynqmon.ServeHTTP(page, r)
	m.index, m.scripts, err = monitorIndex(page.body.Bytes())
	return m, err
}

// describeResult hides what a task has left: rings leave nothing.
func describeResult(_ string, result []byte) string {
	if len(result) == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes that are not shown", len(result))
}

// noncePlace stands in the page for the nonce of one answer.
const noncePlace = "monitor-nonce"

var (
	// foreignLink matches what the page would fetch from elsewhere, its fonts, and its manifest,
	// which browsers fetch without the session.
	foreignLink = regexp.MustCompile(`<link rel="(?:manifest"|[^>]*"https?:)[^>]*>`)
	// foreign matches what foreignLink must have left none of.
	foreign = regexp.MustCompile(`(?i)(?:src|href)\s*=\s*["']?(?:https?:)?//`)
)

// logoutForm lies over the right end of the page's bar, which is empty, and follows the system's
// colours, as the page does until a person chooses others.
const logoutForm = `<style nonce="` + noncePlace + `">#logout{position:fixed;top:13px;right:24px;z-index:1300}` +
	`#logout button{min-height:38px;padding:0 14px;font:500 14px system-ui,sans-serif;color:#1c2733;` +
	`background:#fff;border:1px solid #8494a4;border-radius:4px;cursor:pointer}` +
	`@media(prefers-color-scheme:dark){#logout button{color:#e6ebf0;background:#303030}}</style>` +
	`<form id="logout" method="post" action="` + monitorLogout + `"><button>Log out</button></form>`

// monitorIndex makes the page that is served of asynqmon's, and what its policy says of scripts.
func monitorIndex(page []byte) (index []byte, scripts string, err error) {
	page = foreignLink.ReplaceAll(page, nil)
	if foreign.Match(page) {
		return nil, "", errors.New("httpapi: the page of the monitor fetches something from elsewhere")
	}
	scripts = "script-src 'self'" + inlineDigests(page)
	for _, insert := range []struct{ before, what string }{
		// Material-UI (JSS) puts this nonce on the styles that it adds.
		{"</head>", `<meta property="csp-nonce" content="` + noncePlace + `">`},
		{"</body>", logoutForm},
	} {
		if bytes.Count(page, []byte(insert.before)) != 1 {
			return nil, "", fmt.Errorf("httpapi: the page of the monitor has not one %s", insert.before)
		}
		page = bytes.Replace(page, []byte(insert.before), []byte(insert.what+insert.before), 1)
	}
	return page, scripts, nil
}

// inlineDigests names the scripts in a page for its policy.
func inlineDigests(page []byte) string {
	var digests strings.Builder
	for _, m := range inlineScript.FindAllSubmatch(page, -1) {
		digest := sha256.Sum256(m[1])
		digests.WriteString(" 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'")
	}
	return digests.String()
}

// monitorPolicy begins each policy of the monitor: nothing of it may be framed, nor come from
// elsewhere, nor send a form there.
const monitorPolicy = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; "

// monitorRoutes adds the monitor, for who has the admin key. Both patterns are all that metrics
// and logs know of what is asked for.
func (s *Server) monitorRoutes() {
	for _, pattern := range []string{monitorPath, monitorPath + "/*path"} {
		s.engine.Match(monitorMethods, pattern, s.serveMonitor)
	}
}

// serveMonitor is the one door to everything under monitorPath.
func (s *Server) serveMonitor(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with less, browsers would send no Origin with the login
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", monitorPolicy)
	h.Set("Vary", "Accept, Cookie, Authorization, X-API-Key")
	r := c.Request
	if !plainPath(r.URL) {
		s.refuseMonitor(c, crawl.Faultf(crawl.CodeNotFound, "no such route"))
		return
	}
	// Before anything else, and for the login too: another site must not log a browser in or out.
	if err := s.monitor.origin.Check(r); err != nil {
		s.refuseMonitor(c, crawl.Faultf(codeCrossOrigin, "This call comes from a page of another site. "+
			"Open %s in this browser and make it there.", monitorHome))
		return
	}
	r.Body = http.MaxBytesReader(c.Writer, r.Body, maxMonitorBody)
	switch r.URL.Path {
	case monitorLogin:
		s.login(c)
	case monitorLogout:
		s.logout(c)
	default:
		s.serveAsynqmon(c)
	}
}

// plainPath holds a path to one spelling, so that what is checked here is what asynqmon looks up:
// it would resolve "..", redirect from "//", and see a slash where an encoded one was.
func plainPath(u *url.URL) bool {
	clean := path.Clean(u.Path)
	return (u.Path == clean || u.Path == clean+"/") && !strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// serveAsynqmon answers what is asynqmon's, to who may see it.
func (s *Server) serveAsynqmon(c *gin.Context) {
	r := c.Request
	switch {
	case !s.mayMonitor(r) && wantsPage(r) && reads(r):
		c.Redirect(http.StatusSeeOther, monitorLogin+"?"+url.Values{"next": {r.URL.RequestURI()}}.Encode())
	case !s.mayMonitor(r):
		s.refuseMonitor(c, unauthenticated("This needs the admin key of the service, as Authorization: Bearer KEY or "+
			"X-API-Key: KEY, or a session of the monitor. In a browser, reload the page to log in."))
	case !reads(r) && (!s.monitor.write || !strings.HasPrefix(r.URL.Path, monitorAPI)):
		c.Header("Allow", strings.Join(readMethods, ", "))
		s.refuseMonitor(c, crawl.Faultf(codeMethodNotAllowed, "The monitor only shows. "+
			"Whoever runs the service can let it change the queue, with TRAWL_MONITOR_WRITE=true."))
	case strings.HasPrefix(r.URL.Path, monitorAPI):
		s.serveMonitorAPI(c)
	case isAsset(r.URL.Path):
		s.serveMonitorAsset(c)
	default:
		s.serveMonitorIndex(c)
	}
}

// mayMonitor reports whether the request carries the admin key or a session. Either is proof,
// whatever else a proxy in front may send along.
func (s *Server) mayMonitor(r *http.Request) bool {
	if key, err := credential(r.Header); err == nil && s.admin.opens(key) {
		return true
	}
	return s.monitor.sessions.hold(r)
}

// reads reports whether the request changes nothing.
func reads(r *http.Request) bool { return slices.Contains(readMethods, r.Method) }

// wantsPage reports whether a person waits for the answer in a browser's window.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// serveMonitorIndex answers the page, which shows by its address what is asked for.
func (s *Server) serveMonitorIndex(c *gin.Context) {
	nonce := rand.Text()
	c.Header("Content-Security-Policy", monitorPolicy+"connect-src 'self'; img-src 'self' data:; "+
		"style-src 'nonce-"+nonce+"'; "+s.monitor.scripts)
	c.Data(http.StatusOK, "text/html; charset=utf-8",
		bytes.ReplaceAll(s.monitor.index, []byte(noncePlace), []byte(nonce)))
}

// isAsset reports whether a path names a file of the page: all lie in one folder, or beside the
// page. Addresses within the page lie deeper, and may end as a file does.
func isAsset(p string) bool {
	switch path.Ext(p) {
	case ".js", ".png", ".ico", ".json", ".txt":
		return path.Dir(p) == monitorPath || strings.HasPrefix(p, monitorStatic)
	}
	return strings.HasPrefix(p, monitorStatic)
}

// serveMonitorAsset answers a file of the page. Those whose name has their digest in it never
// change; the others change with the binary.
func (s *Server) serveMonitorAsset(c *gin.Context) {
	file := newRecorder()
	s.monitor.asynqmon.ServeHTTP(file, asGet(c.Request))
	kind := file.header.Get("Content-Type")
	if kind == "" || file.status != http.StatusOK { // the page, which asynqmon answers for what it has not
		s.refuseMonitor(c, crawl.Faultf(crawl.CodeNotFound, "no such file"))
		return
	}
	c.Header("Cache-Control", "private, max-age=3600")
	if strings.HasPrefix(c.Request.URL.Path, monitorStatic) {
		c.Header("Cache-Control", "private, max-age=31536000, immutable")
	}
	s.extend(c)
	c.Data(http.StatusOK, kind, file.body.Bytes())
}

// asGet is r as asynqmon knows it, which has no HEAD; net/http sends the header only.
func asGet(r *http.Request) *http.Request {
	if r.Method == http.MethodHead {
		r = r.Clone(r.Context())
		r.Method = http.MethodGet
	}
	return r
}

// monitorPages checks what a call says of its page, within the bounds of this service.
func monitorPages(q url.Values) error {
	for name, most := range map[string]int{"size": maxMonitorPage, "page": maxMonitorPages} {
		if !q.Has(name) {
			continue
		}
		if n, err := strconv.Atoi(q.Get(name)); err != nil || n < 1 || n > most {
			return &crawl.Fault{
				Code: crawl.CodeInvalid, Message: fmt.Sprintf("%s must be a number from 1 to %d.", name, most),
				Fields: []crawl.FieldFault{{Field: name, Rule: "range", Message: fmt.Sprintf("1 to %d", most)}},
			}
		}
	}
	return nil
}
