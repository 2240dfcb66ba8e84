package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/trawl/pkg/crawl"
)

// maxRetryAfter bounds what a server may ask for: a page must not wait for a
// date in the next century.
const maxRetryAfter = time.Hour

// progress is how far a fetch came, and with that what an error of it means.
type progress struct {
	what    string        // is fetched, for messages: "page" or "file"
	timeout time.Duration // of the whole fetch
	status  int           // of the last answer, 0 before it
	inBody  bool
}

// fault makes a Fault of what ended a fetch. ctx is the fetch's own context,
// whose deadline is that of timeout; the caller's has not ended.
func (p *progress) fault(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*crawl.Fault](err); ok {
		if f.Status == 0 {
			f.Status = p.status
		}
		return f
	}
	f := p.classify(ctx, err)
	f.Status, f.Err = p.status, err
	return f
}

// classify names a failure of the network or of HTTP. The order matters: the
// fetch's own deadline shows as any of the others, and a DNS error is a
// net.Error too.
func (p *progress) classify(ctx context.Context, err error) *crawl.Fault {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return temporary(crawl.CodeTimeout, "The "+p.what+" was not complete within "+p.timeout.String()+".")
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return crawl.Faultf(crawl.CodeDNS, "The host name does not exist; check its spelling.")
		}
		return temporary(crawl.CodeDNS, "The host name could not be looked up.")
	}
	if IsTLS(err) {
		return crawl.Faultf(crawl.CodeTLS, "%s", tlsMessage(err))
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return temporary(crawl.CodeTimeout, "The server did not answer in time.")
	}
	if p.inBody {
		return temporary(crawl.CodeTruncated, "The connection ended before the "+p.what+" was complete.")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return temporary(crawl.CodeConnection, "The server refused the connection.")
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || errors.Is(err, syscall.ECONNRESET) {
		return temporary(crawl.CodeConnection, "The server could not be reached, or it broke the connection off.")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		// Mostly a server that is restarting, so worth another try.
		return temporary(crawl.CodeBadResponse, "The server closed the connection without a complete answer.")
	}
	return crawl.Faultf(crawl.CodeBadResponse, "The server's answer is not valid HTTP.")
}

func temporary(code crawl.Code, message string) *crawl.Fault {
	return &crawl.Fault{Code: code, Message: message, Temporary: true}
}

// IsTLS reports whether err comes from a TLS handshake. Alerts have no exported
// type: they are OpErrors of these two operations, and the rest of crypto/tls
// are plain errors that begin with its name.
func IsTLS(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "remote error" || op.Op == "local error") {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	text := err.Error()
	return errors.Is(err, http.ErrSchemeMismatch) || strings.HasPrefix(text, "tls: ") || strings.Contains(text, ": tls: ")
}

func tlsMessage(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "The server's certificate is for another name."
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return "The server's certificate has expired or is not valid yet."
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "The server's certificate is signed by an authority that is not known here."
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return "The server does not speak TLS on this port; try http:// in place of https://."
	}
	return "No secure connection to the server could be made."
}

// statusFault is the fault of an answer that is neither a page nor a redirect.
func statusFault(res *http.Response) *crawl.Fault {
	status := res.StatusCode
	switch {
	case status >= 400:
		f := &crawl.Fault{
			Code: crawl.HTTPCode(status), Status: status,
			Message: strings.TrimSpace(fmt.Sprintf("The server answered %d %s", status, http.StatusText(status))) + ".",
		}
		if mayPass(status) {
			f.Temporary = true
			f.RetryAfter = RetryAfter(res.Header.Get("Retry-After"), time.Now(), maxRetryAfter)
		}
		return f
	case status == http.StatusNotModified:
		return &crawl.Fault{
			Code: crawl.CodeBadResponse, Status: status,
			Message: "The server answered 304 Not Modified although the whole page was asked for.",
		}
	case status >= 300:
		return &crawl.Fault{
			Code: crawl.CodeBadRedirect, Status: status,
			Message: fmt.Sprintf("The server answered %d, which names no page to go to.", status),
		}
	}
	return &crawl.Fault{
		Code: crawl.CodeBadResponse, Status: status,
		Message: fmt.Sprintf("The server answered %d, which is no answer to this request.", status),
	}
}

// mayPass reports whether an error status may be another one a little later.
func mayPass(status int) bool {
	switch status {
	case 408, 425, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// partFault is the fault of a 206 that is not known to be the whole. Nobody asked for a
// range, so it comes from a cache that went wrong, and that may pass.
func partFault(what string, status int) *crawl.Fault {
	f := temporary(crawl.CodeTruncated,
		"The server answered 206 Partial Content, although the whole "+what+" was asked for.")
	f.Status = status
	return f
}

// isWhole reports whether the Content-Range lines (RFC 9110 section 14.4) are one
// that names all bytes there are. Without one it is not known what is missing.
func isWhole(lines []string) bool {
	if len(lines) != 1 {
		return false
	}
	unit, rest, _ := strings.Cut(strings.TrimSpace(lines[0]), " ")
	positions, size, ok := strings.Cut(rest, "/")
	first, last, ranged := strings.Cut(positions, "-")
	if !strings.EqualFold(unit, "bytes") || !ok || !ranged || first != "0" {
		return false
	}
	n, err := strconv.ParseUint(size, 10, 63)
	end, endErr := strconv.ParseUint(last, 10, 63)
	return err == nil && endErr == nil && n == end+1
}

// RetryAfter reads a Retry-After value (RFC 9110 section 10.2.3), seconds or a
// date, as a duration from now: 0 when absent, past or unreadable, at most most.
func RetryAfter(v string, now time.Time, most time.Duration) time.Duration {
	v = strings.TrimSpace(v)
	var d time.Duration
	if s, err := strconv.ParseUint(v, 10, 64); err == nil {
		d = time.Duration(min(s, uint64(most/time.Second))) * time.Second
	} else if errors.Is(err, strconv.ErrRange) {
		d = most
	} else if t, err := http.ParseTime(v); err == nil {
		d = t.Sub(now)
	}
	return max(0, min(d, most))
}

// panicked is the fault of a defect of ours, or of a library, on one page.
func panicked(p any) error {
	return &crawl.Fault{
		Code:    crawl.CodeInternal,
		Message: "The page could not be processed because of a defect of the crawler; please report it.",
		Err:     fmt.Errorf("panic: %v\n%s", p, debug.Stack()),
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return itoa(n) + " " + noun + "s"
}

// clip shortens s to at most n bytes for a message. URLs are ASCII.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
