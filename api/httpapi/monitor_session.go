package httpapi

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed" // the page of the login
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"example.com/trawl/pkg/crawl"
)

const (
	// sessionLife is a working day: who comes back tomorrow logs in again.
	sessionLife = 8 * time.Hour
	// sessionCookie is sent to the monitor alone. Over TLS its name has the prefix that lets
	// browsers take it over TLS only; the other prefix, __Host-, would want it sent everywhere.
	sessionCookie       = "trawl_monitor"
	secureSessionCookie = "__Secure-" + sessionCookie

	// maxLoginBody is a key of 256 characters and an address, escaped.
	maxLoginBody = 8 << 10

	// loginBurst and loginEvery bound how often a process compares a key that somebody types:
	// ten in a row, then one in six seconds, whoever asks, for an address is cheap. Keys have 16
	// characters and more, so this is for the log and the metrics rather than for the key. It
	// holds up no session and no key in a header, and so nobody can be locked out by it.
	loginBurst = 10
	loginEvery = 6 * time.Second
)

// sessions are the logins of the monitor. Nothing of them is kept: a cookie says until when it
// holds, and carries a digest that only who has the admin key can make. So it holds at every
// process of the API and after a restart, until its time is over or the admin key is changed;
// a logout takes it from the browser only.
type sessions struct {
	key      []byte
	attempts *rate.Limiter
}

func newSessions(adminKey string) (sessions, error) {
	// Of its own: a cookie is then no help with anything else that the admin key may sign.
	key, err := hkdf.Key(sha256.New, []byte(adminKey), nil, "trawl: session of the monitor", sha256.Size)
	if err != nil {
		return sessions{}, fmt.Errorf("httpapi: sessions of the monitor: %w", err)
	}
	return sessions{key: key, attempts: rate.NewLimiter(rate.Every(loginEvery), loginBurst)}, nil
}

// A token is until when it holds, in seconds of Unix time, random bytes, and the digest of both.
const (
	tokenTime   = 8
	tokenRandom = 16
	tokenSigned = tokenTime + tokenRandom
)

// tokenText is strict, so that a token has one spelling.
var tokenText = base64.RawURLEncoding.Strict()

func (s sessions) sign(b []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(b)
	return mac.Sum(nil)
}

// begin returns a token that holds for sessionLife from now on.
func (s sessions) begin(now time.Time) string {
	b := make([]byte, tokenSigned)
	binary.BigEndian.PutUint64(b, uint64(now.Add(sessionLife).Unix()))
	_, _ = rand.Read(b[tokenTime:]) // never fails, as its contract says
	return tokenText.EncodeToString(append(b, s.sign(b)...))
}

// holds reports whether the token is one of this service and its time is not over.
func (s sessions) holds(token string, now time.Time) bool {
	b, err := tokenText.DecodeString(token)
	if err != nil || len(token) != tokenText.EncodedLen(tokenSigned+sha256.Size) ||
		!hmac.Equal(b[tokenSigned:], s.sign(b[:tokenSigned])) {
		return false
	}
	return uint64(now.Unix()) < binary.BigEndian.Uint64(b)
}

// hold reports whether the request carries a session. A browser may have one of either name, and
// of one name several: any that holds will do, for each was made with the admin key.
func (s sessions) hold(r *http.Request) bool {
	for _, c := range r.Cookies() {
		if (c.Name == sessionCookie || c.Name == secureSessionCookie) && s.holds(c.Value, time.Now()) {
			return true
		}
	}
	return false
}

// overTLS reports whether the browser came by TLS, to this process or to a proxy that says so.
// Whoever lies about it only gets a cookie that their own browser does not send back: it adds
// Secure and takes nothing away, and no page can make another's browser send this header.
func overTLS(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(first), "https")
}

// setSession puts the token in the browser, or takes it away when there is none.
func setSession(c *gin.Context, token string) {
	set := func(name string, secure bool, value string) {
		cookie := http.Cookie{
			Name: name, Value: value, Path: monitorPath, MaxAge: int(sessionLife / time.Second),
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure,
		}
		if value == "" {
			cookie.MaxAge = -1
		}
		http.SetCookie(c.Writer, &cookie)
	}
	secure := overTLS(c.Request)
	if secure || token == "" {
		set(secureSessionCookie, true, token)
	}
	if !secure || token == "" {
		set(sessionCookie, secure, token)
	}
}

// loginSource is the page of the login. It is whole in itself: it fetches nothing.
//
//go:embed monitor_login.html
var loginSource string

var (
	loginPage   = template.Must(template.New("login").Parse(loginSource))
	loginStyle  = regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(loginSource)[1]
	loginDigest = sha256.Sum256([]byte(loginStyle))
	loginPolicy = monitorPolicy + "img-src data:; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(loginDigest[:]) + "'"
)

// login shows the form, and takes what is entered in it.
func (s *Server) login(c *gin.Context) {
	r := c.Request
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		next := monitorTarget(r.URL.Query().Get("next"))
		if s.mayMonitor(r) {
			c.Redirect(http.StatusSeeOther, next)
			return
		}
		s.showLogin(c, http.StatusOK, next, "")
	case http.MethodPost:
		s.takeLogin(c)
	default:
		s.refuseOtherMethod(c, http.MethodGet, http.MethodHead, http.MethodPost)
	}
}

// takeLogin begins a session for who enters the admin key.
func (s *Server) takeLogin(c *gin.Context) {
	r := c.Request
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		s.refuseMonitor(c, crawl.Faultf(codeUnsupportedMediaType, "A login is a form: application/x-www-form-urlencoded."))
		return
	}
	r.Body = http.MaxBytesReader(c.Writer, r.Body, maxLoginBody)
	if err := r.ParseForm(); err != nil {
		s.refuseMonitor(c, formFault(err))
		return
	}
	next := monitorTarget(r.PostForm.Get("next"))
	// Only wrong keys are counted, or whoever guesses without end would keep out who has the right
	// one. A guesser learns no more by it than from the key in a header, which nothing holds up.
	if s.admin.opens(r.PostForm.Get("key")) {
		setSession(c, s.monitor.sessions.begin(time.Now()))
		c.Redirect(http.StatusSeeOther, next)
		return
	}
	attempt := s.monitor.sessions.attempts.Reserve()
	if wait := attempt.Delay(); wait > 0 {
		attempt.Cancel()
		s.refuseLogin(c, next, &crawl.Fault{
			Code: crawl.CodeRateLimited, RetryAfter: wait,
			Message: "There were too many attempts to log in. Wait a few seconds, then try again.",
		})
		return
	}
	s.refuseLogin(c, next, unauthenticated("That is not the admin key of this service. "+
		"It is what TRAWL_ADMIN_KEY was set to; check for missing characters and spaces."))
}

func formFault(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return crawl.Faultf(crawl.CodeBodyTooLarge, "A login is at most %d bytes.", maxLoginBody)
	}
	return malformed("The body is no form.")
}

// refuseLogin says why nobody is logged in: to a person in the form, to a program as a problem.
func (s *Server) refuseLogin(c *gin.Context, next string, err error) {
	if !wantsPage(c.Request) {
		s.refuseMonitor(c, err)
		return
	}
	x := exchangeIn(c)
	p := x.fail(err)
	for name, values := range p.header {
		c.Writer.Header()[name] = values
	}
	s.showLogin(c, p.Status, next, p.Detail)
}

func (s *Server) showLogin(c *gin.Context, status int, next, fault string) {
	var page bytes.Buffer
	if err := loginPage.Execute(&page, struct{ Next, Fault string }{next, fault}); err != nil {
		s.refuse(c, err)
		return
	}
	s.extend(c)
	c.Header("Content-Security-Policy", loginPolicy)
	c.Data(status, "text/html; charset=utf-8", page.Bytes())
}

// logout takes the session from the browser. Who has none is logged out already.
func (s *Server) logout(c *gin.Context) {
	if c.Request.Method != http.MethodPost {
		s.refuseOtherMethod(c, http.MethodPost)
		return
	}
	setSession(c, "")
	c.Redirect(http.StatusSeeOther, monitorLogin)
}

func (s *Server) refuseOtherMethod(c *gin.Context, allowed ...string) {
	c.Header("Allow", strings.Join(allowed, ", "))
	s.refuseMonitor(c, crawl.Faultf(codeMethodNotAllowed,
		"This address does not take this method; Allow names those that it does."))
}

// monitorTarget returns where a login leads: to what was asked for when that is a page of the
// monitor, to the first page otherwise. Nothing that a link to the login says leads elsewhere.
func monitorTarget(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!plainPath(u) || !strings.HasPrefix(u.Path, monitorHome) {
		return monitorHome
	}
	for _, other := range []string{monitorAPI, monitorStatic, monitorLogin, monitorLogout} {
		if strings.HasPrefix(u.Path+"/", path.Clean(other)+"/") {
			return monitorHome
		}
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String()
}
