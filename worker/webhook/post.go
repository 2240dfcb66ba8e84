package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

const (
	// Timeout bounds a try: look-up, connection, request and the header of the answer. It
	// is what Standard Webhooks suggests at most, and leaves 5 s of [store.DeliveryClaim]
	// to tell the store.
	Timeout = 15 * time.Second
	// maxAnswerHeader bounds the header of an answer, in bytes; only the status is used.
	maxAnswerHeader = 64 << 10
	// Of the body nothing is used. So much of it is taken, so long, that a receiver which
	// writes a usual answer is not cut off and calls the delivery failed.
	maxAnswerBody = 64 << 10
	answerTime    = time.Second
)

// Dialer opens a connection, as that of http.Transport. It is the guard (package netguard).
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// newTransport makes the transport of all deliveries. No connection is kept: each is judged
// by the guard, and a delivery is too rare to gain by one.
func newTransport(dial Dialer) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // behind a proxy the guard would judge the proxy's address only
		DialContext:            contained(dial),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		DisableCompression:     true, // the body is not read: nothing is to be unpacked
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
}

// contained has a dialer that panics fail. The transport dials in a goroutine of its own, where
// nobody else could recover, and the worker would end with all its pages.
func contained(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		defer func() {
			if v := recover(); v != nil {
				c, err = nil, fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		return dial(ctx, network, addr)
	}
}

// answer is what came of one try.
type answer struct {
	status     int           // 0 without an answer
	retryAfter time.Duration // what it asks to wait
	err        error         // without a status: why there is none
}

// post makes one request. It is RoundTrip and no http.Client, since a client follows
// redirects, and makes a GET of a POST on the way.
func post(ctx context.Context, t http.RoundTripper, userAgent string, d *store.Delivery) (a answer) {
	defer func() {
		if v := recover(); v != nil { // counts as a try, or it would be made again for ever
			a = answer{err: fmt.Errorf("panic: %v\n%s", v, debug.Stack())}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	req, err := request(ctx, userAgent, d)
	if err != nil {
		return answer{err: err}
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	a = answer{status: res.StatusCode}
	if !delivered(a.status) {
		a.retryAfter = fetch.RetryAfter(res.Header.Get("Retry-After"), d.Now, retryAfterMost)
	}
	if a.status != http.StatusSwitchingProtocols { // whose body is the connection
		patience := time.AfterFunc(answerTime, cancel)
		defer patience.Stop()
		_, _ = io.CopyN(io.Discard, res.Body, maxAnswerBody) // the status has said it all
	}
	_ = res.Body.Close()
	return a
}

// request makes the request of a try, signed when there is a secret. The time in it is that
// of the store, for a worker's clock may be wrong and receivers refuse what is old.
func request(ctx context.Context, userAgent string, d *store.Delivery) (*http.Request, error) {
	body, err := json.Marshal(d.Event)
	if err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL of the webhook cannot be requested") // err repeats it
	}
	// A body that cannot be had again is never sent a second time behind our back.
	req.GetBody = nil
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {userAgent},
		// In lower case, as the specification writes them; HTTP does not mind.
		"Webhook-Id": {d.EventID}, "Webhook-Timestamp": {strconv.FormatInt(d.Now.Unix(), 10)},
	}
	if d.Secret == "" {
		return req, nil
	}
	key, err := standardwebhooks.NewWebhook(string(d.Secret))
	if err != nil {
		return nil, errors.New("the secret of the webhook cannot be read") // err may repeat it
	}
	signature, err := key.Sign(d.EventID, d.Now, body)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	req.Header["Webhook-Signature"] = []string{signature}
	return req, nil
}

// delivered reports whether a status says that the receiver has the event.
func delivered(status int) bool { return status >= 200 && status <= 299 }

// explain says for a person why a try was no delivery. No text of the network is in it:
// that would tell a stranger of the machines here.
func (a *answer) explain() string {
	switch {
	case delivered(a.status):
		return ""
	case a.status == http.StatusGone:
		return "The receiver answered 410 Gone, which asks for no more."
	case a.status >= 300 && a.status <= 399 && a.status != http.StatusNotModified:
		return fmt.Sprintf("The receiver answered %d. Redirects are not followed: name the URL that answers 2xx.", a.status)
	case a.status != 0:
		return strings.TrimSpace(fmt.Sprintf("The receiver answered %d %s", a.status, http.StatusText(a.status))) +
			"; only 2xx is success."
	}
	if f, ok := errors.AsType[*crawl.Fault](a.err); ok {
		return f.Message // the guard's, which is written for callers
	}
	if errors.Is(a.err, context.DeadlineExceeded) {
		return "The receiver did not answer within " + Timeout.String() + "."
	}
	if e, ok := errors.AsType[*net.DNSError](a.err); ok && e.IsNotFound {
		return "The host name of the receiver does not exist."
	} else if ok {
		return "The host name of the receiver could not be looked up."
	}
	if fetch.IsTLS(a.err) {
		return "No secure connection to the receiver could be made: its certificate or its TLS version was not accepted."
	}
	if e, ok := errors.AsType[net.Error](a.err); ok && e.Timeout() {
		return "The receiver did not answer in time."
	}
	if e, ok := errors.AsType[*net.OpError](a.err); ok && e.Op == "dial" {
		return "The receiver could not be reached."
	}
	return "The receiver broke the connection off, or its answer is not HTTP."
}

// retryAfterMost bounds what a receiver can ask for: the longest wait that the schedule has.
const retryAfterMost = 2 * time.Hour
