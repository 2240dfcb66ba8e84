package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.com/trawl/pkg/crawl"
)

const (
	// DefaultMaxHops is the number of redirects that RFC 9309 section 2.3.1.2 asks
	// a crawler to follow for a robots.txt.
	DefaultMaxHops = 5
	// DefaultRawBytes holds a robots.txt: 500 KiB must be read (RFC 9309 section
	// 2.5).
	DefaultRawBytes = 512 << 10

	acceptRaw         = "text/plain,application/xml,text/xml,*/*;q=0.8"
	acceptRawEncoding = "gzip" // see windows
)

// RawRequest is one file about a site to get: its robots.txt or a sitemap.
type RawRequest struct {
	// URL is where the file is said to be.
	URL crawl.URL
	// MaxBytes bounds what is read after content codings are undone; zero stands
	// for [DefaultRawBytes].
	MaxBytes int64
	// MaxHops bounds the redirects that are followed, also to other origins: zero
	// stands for [DefaultMaxHops], a negative number for none.
	MaxHops int
	// Timeout bounds the whole of it when it is shorter than that of the Fetcher.
	Timeout time.Duration
	// UserAgent is sent in place of that of the Fetcher; visible ASCII and spaces.
	UserAgent string
	// Hop is asked before a redirect is followed; nil follows all. Its error ends
	// the fetch and is returned as it is.
	Hop func(to crawl.URL) error
	// Read, when set, is given the body of a 2xx answer while it arrives, in place of
	// Raw.Body, so that a large one is never held. It is called at most once, and an
	// error of it is returned as it is, unless the body failed first. It must not
	// keep body.
	Read func(head Raw, body io.Reader) error
}

// Raw is the answer to a RawRequest, whatever its status.
type Raw struct {
	Status int
	// Final is the URL that answered, or failed to.
	Final crawl.URL
	// ContentType is the media type as the server names it, in lower case; empty
	// when it names none.
	ContentType string
	// Body is that of a 2xx answer, with its content codings undone. A file that is
	// itself compressed (a .gz served as application/gzip) stays so.
	Body []byte
	// Bytes counts what was read of the body.
	Bytes int64
	// Truncated reports that there was more than MaxBytes.
	Truncated bool
	// RetryAfter is what a 429 or 503 and the like asks to wait, at most an hour.
	RetryAfter time.Duration
}

// Raw gets a file that is about a site and no page of it: without cookies, headers
// of a job, parsing, or colly. It follows redirects to other origins itself, through
// the same guard. An error status is an answer here, not an error; errors are those
// of [Fetcher.Fetch], and with one the Raw has Status and Final.
func (f *Fetcher) Raw(ctx context.Context, req RawRequest) (raw Raw, err error) {
	defer func() {
		if p := recover(); p != nil {
			raw, err = Raw{}, panicked(p)
		}
	}()
	if req.URL.IsZero() {
		return Raw{}, errNoURL()
	}
	header, err := requestHeader(f.header, req.UserAgent, nil)
	if err != nil {
		return Raw{Final: req.URL}, err
	}
	header["Accept"], header["Accept-Encoding"] = []string{acceptRaw}, []string{acceptRawEncoding}
	if req.MaxBytes <= 0 {
		req.MaxBytes = DefaultRawBytes
	}
	if req.MaxHops == 0 {
		req.MaxHops = DefaultMaxHops
	}
	timeout := f.opts.Timeout
	if req.Timeout > 0 {
		timeout = min(timeout, req.Timeout)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	x := &rawExchange{
		progress: progress{what: "file", timeout: timeout},
		trail:    trail{what: "file", most: max(req.MaxHops, 0), seen: []crawl.Key{req.URL.Key()}},
		fetcher:  f,
		req:      req,
		header:   header,
		raw:      Raw{Final: req.URL},
	}
	err = x.run(limited)
	x.raw.Status = x.status
	switch {
	case err == nil:
		return x.raw, nil
	case x.callerErr != nil:
		return x.raw, x.callerErr
	case ctx.Err() != nil:
		return x.raw, fmt.Errorf("fetch: %w", context.Cause(ctx))
	}
	return x.raw, x.fault(limited, err)
}

// rawExchange is one call of Raw.
type rawExchange struct {
	progress
	fetcher   *Fetcher
	req       RawRequest
	header    http.Header
	trail     trail
	callerErr error // of Hop or Read
	raw       Raw
}

// run requests until an answer is no redirect.
func (x *rawExchange) run(ctx context.Context) error {
	for {
		next, err := x.request(ctx)
		if err != nil || next.IsZero() {
			return err
		}
		if err := x.trail.add(x.status, x.raw.Final, next); err != nil {
			return err
		}
		if x.req.Hop != nil {
			if x.callerErr = x.req.Hop(next); x.callerErr != nil {
				return x.callerErr
			}
		}
		x.raw.Final = next
	}
}

// request does one request and returns where it redirects to, zero for an answer.
func (x *rawExchange) request(ctx context.Context) (next crawl.URL, err error) {
	at := x.raw.Final
	x.status, x.inBody = 0, false
	// Not made of at, which net/url may refuse to read.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, nowhere, http.NoBody)
	if err != nil {
		return next, err
	}
	req.URL, req.Host, req.Header = urlOf(at), "", x.header.Clone()
	if req, err = exact(req, at); err != nil {
		return next, err
	}
	res, err := x.fetcher.transport.RoundTrip(req)
	if err != nil {
		return next, err
	}
	x.status = res.StatusCode
	if err := checkFields(res); err != nil {
		return next, err
	}
	x.inBody = true
	switch {
	case res.StatusCode < 200:
		_ = res.Body.Close()
		return next, statusFault(res)
	case redirects(res.StatusCode):
		drain(res.Body)
		return location(x.what, at, res.Header["Location"])
	case res.StatusCode == http.StatusPartialContent && !isWhole(res.Header["Content-Range"]):
		drain(res.Body)
		return next, partFault(x.what, res.StatusCode)
	case res.StatusCode >= 300:
		drain(res.Body)
		if mayPass(res.StatusCode) {
			x.raw.RetryAfter = RetryAfter(res.Header.Get("Retry-After"), time.Now(), maxRetryAfter)
		}
		return next, nil
	}
	err = x.read(res)
	_ = res.Body.Close()
	return next, err
}

// windows bounds the files of a coding with a large window that are read in this process
// at a time. None is asked for, so that there are hardly any to wait for each other.
var windows = make(chan struct{}, 4)

// read takes the body of a 2xx answer, or gives it to the caller.
func (x *rawExchange) read(res *http.Response) error {
	x.raw.Status = res.StatusCode
	x.raw.ContentType, _ = mediaType(res.Header["Content-Type"])
	codings, err := contentCodings(res.Header["Content-Encoding"])
	if err != nil {
		return err
	}
	wire := newRawReader(res.Body, codings, x.req.MaxBytes)
	if windowed(codings) {
		// It is decoded while it arrives, however slowly, since it may be large.
		select {
		case windows <- struct{}{}:
			defer func() { <-windows }()
		case <-res.Request.Context().Done():
			return res.Request.Context().Err()
		}
	}
	// The limit of the decoder would be an error; the body ends before it.
	decoded, release := undo(codings, wire, x.req.MaxBytes+1)
	defer release()
	body := &cutReader{r: decoded, left: x.req.MaxBytes}
	err = x.consume(body)
	x.raw.Bytes, x.raw.Truncated = x.req.MaxBytes-body.left, body.cut
	if body.err != nil {
		return decodeFault(x.what, wire, len(codings) > 0, body.err)
	}
	x.callerErr = err
	return err
}

// consume returns the error of the caller's Read only; others are in body.
func (x *rawExchange) consume(body *cutReader) error {
	if x.req.Read != nil {
		return x.req.Read(x.raw, body)
	}
	x.raw.Body, _ = io.ReadAll(body)
	return nil
}

// cutReader ends after a number of bytes, notes whether there were more, and
// remembers the error of the reader below it.
type cutReader struct {
	r    io.Reader
	left int64
	cut  bool
	err  error // other than io.EOF
}

func (c *cutReader) Read(p []byte) (int, error) {
	switch {
	case c.err != nil:
		return 0, c.err
	case c.cut || len(p) == 0:
		return 0, io.EOF
	}
	// One byte beyond the limit tells whether there is more.
	p = p[:min(int64(len(p)), c.left+1)]
	n, err := c.r.Read(p)
	if int64(n) > c.left || errors.Is(err, errDecodedLimit) {
		n, c.cut = int(min(int64(n), c.left)), true
		c.left -= int64(n)
		return n, io.EOF
	}
	c.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}
