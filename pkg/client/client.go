package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const (
	dialTimeout         = 10 * time.Second
	keepAlive           = 30 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	// headerTimeout is longer than the longest wait of the service: to extract from a URL takes
	// up to thirty seconds, and a few more when the store is slow.
	headerTimeout = 45 * time.Second
	// idleTimeout is shorter than the 120 s after which the service closes an idle
	// connection, so that a request rarely meets one that is being closed.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes bounds the header of an answer; one of the service has some hundred bytes.
	maxHeaderBytes = 256 << 10

	maxIdlePerHost = 16

	// defaultRetries makes five tries a call: over in two seconds when the service is
	// not there, and long enough for a process that is being replaced.
	defaultRetries = 4
)

// Client calls one service with one key. It is safe for concurrent use.
type Client struct {
	base string // without a slash at the end
	http *http.Client

	// The key is in these closures only, so that no way of printing a Client shows it.
	authorize func(*http.Request)
	conceal   func(string) string

	retries int
	look    time.Duration // longest pause between two looks
}

// New makes a client of the service at base, such as http://127.0.0.1:8008, that shows
// key with each call. A path in base is kept, for a service behind a gateway. New opens
// nothing; the error says what is wrong with base or key.
func New(base, key string, options ...Option) (*Client, error) {
	root, err := checkBase(base)
	if err != nil && strings.Contains(key, "://") {
		// Said without the values: what stands for the address is then the key.
		return nil, errors.New("trawl client: the address and the key are swapped; give the address first")
	}
	if err = errors.Join(err, checkKey(key)); err != nil {
		return nil, err
	}
	c := &Client{
		base: root, retries: defaultRetries, look: longestLook,
		authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) },
		conceal:   func(s string) string { return strings.ReplaceAll(s, key, "[key]") },
	}
	for _, option := range options {
		option(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport()}
	}
	if c.http.CheckRedirect == nil {
		own := *c.http // the caller's stays as it is
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.http = &own
	}
	return c, nil
}

// Option changes a [Client] that is being made.
type Option func(*Client)

// WithHTTPClient makes the client send its requests by h, with the transport and the
// timeouts of h: an overall timeout of h bounds each try, and cuts a long [Client.Result].
// Redirects are followed only when h has a CheckRedirect of its own; nil changes nothing.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithRetries sets how often a call is repeated at most when it fails in a way that may
// pass; the default is 4, and 0 or less repeats nothing. [Client.Wait] and [Follow]
// go on over outages all the same.
func WithRetries(n int) Option { return func(c *Client) { c.retries = n } }

// WithLongestLook sets the longest pause between two looks of [Client.Wait], and of what
// [Follow]s: 2 s by default, less for who shows a person how it goes on. Below a tenth of
// a second it is a tenth of a second.
func WithLongestLook(d time.Duration) Option {
	return func(c *Client) { c.look = max(d, firstLook) }
}

// CloseIdleConnections closes the connections that no call uses now. The client can be
// used afterwards.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// String names the service that c calls.
func (c *Client) String() string { return "trawl client of " + c.base }

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout:    tlsHandshakeTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true, // a DialContext of one's own turns it off
	}
}

// checkBase returns base without slashes at its end. Its errors never repeat what stands
// before an @, which may be a password.
func checkBase(base string) (string, error) {
	const example = "write it like http://127.0.0.1:8008"
	fault := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("trawl client: the address of the service "+format, args...)
	}
	if base == "" {
		return fault("is empty; %s", example)
	}
	if strings.Contains(base, "@") {
		return fault("holds a user name or password; leave out what stands before the @, and give the API key as key")
	}
	u, err := url.Parse(base)
	if !strings.Contains(base, "://") {
		if guess, err := url.Parse("http://" + base); err == nil && guess.Hostname() != "" {
			return fault("%q has no scheme; did you mean %q?", base, "http://"+base)
		}
		return fault("%q has no scheme; %s", base, example)
	}
	switch {
	case err != nil:
		return fault("%q is no URL; %s", base, example)
	case u.Scheme != "http" && u.Scheme != "https":
		return fault("%q is of scheme %s, but the service is reached by http or https", base, u.Scheme)
	case u.Hostname() == "":
		return fault("%q has no host; %s", base, example)
	case strings.ContainsAny(base, "?#"):
		return fault("%q has a query or a fragment; leave out what begins at ? or #", base)
	}
	root := strings.TrimRight(u.String(), "/")
	if rest, ok := withoutVersion(root); ok {
		return fault("%q ends in the path of its calls; leave /v1 out: %q", base, rest)
	}
	return root, nil
}

// withoutVersion returns what stands before the path of the API that a base ends in, and
// false where it ends in none: with it every call would be answered 404.
func withoutVersion(base string) (string, bool) {
	for _, path := range []string{"/v1", jobsPath} {
		if rest, ok := strings.CutSuffix(base, path); ok {
			return rest, true
		}
	}
	return base, false
}

// checkKey says what is wrong with a key, without showing it.
func checkKey(key string) error {
	if key == "" {
		return errors.New("trawl client: the API key is empty; the operator of the service has one for you")
	}
	if i := strings.IndexFunc(key, invisible); i >= 0 {
		return fmt.Errorf("trawl client: the API key has a character at position %d that is not visible ASCII; "+
			"remove blanks and line breaks around it", i+1)
	}
	return nil
}

// invisible reports whether r is not one of the visible ASCII characters, of which keys
// of both kinds are made.
func invisible(r rune) bool { return r < '!' || r > '~' }

// userAgent names this package and the version of its module in the program at hand.
var userAgent = sync.OnceValue(func() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == "example.com/trawl" && m.Version != "" && m.Version != "(devel)" {
				version = m.Version
			}
		}
	}
	return "trawl-client/" + version
})
