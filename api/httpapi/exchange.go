package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/pkg/crawl"
)

// statusClientGone is what the log and the metrics say of a request whose client
// hung up before the answer. It is never sent.
const statusClientGone = 499

// exchange is one request and what is learned about it on the way, until one log
// event tells it all.
type exchange struct {
	c      *gin.Context
	id     string
	tenant string
	acct   *account   // of the tenant; nil until it is known
	job    string     // a valid job id; what a client wrote instead is not logged
	code   crawl.Code // of the problem that was answered
	err    error      // the cause, when the problem is the service's own
	defect bool       // a handler panicked
	query  []crawl.FieldFault
	span   trace.Span // nil: the request is not traced
}

// headerRequestID is X-Request-ID in the spelling that net/http keeps: every other is made into this
// one at each use.
const headerRequestID = "X-Request-Id"

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// exchangeIn answers the exchange that observe, the outermost handler, began: it is never nil.
func exchangeIn(c *gin.Context) *exchange {
	x, _ := c.Request.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// fail remembers err for the log and returns the problem to answer.
func (x *exchange) fail(err error) *problem {
	p := problemOf(err, x.id)
	x.code = p.Code
	// What a client did wrong is told to the client. Its text may hold what it
	// sent, so only the code of it is logged.
	if p.Status >= http.StatusInternalServerError {
		x.err = err
	}
	return p
}

// extend gives the client another writeTimeout to read what is written next.
func (s *Server) extend(c *gin.Context) {
	// Only a recorder in a test cannot do it; no deadline is right there.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(s.writeTimeout))
}

// observe is the outermost handler: it gives the request its id, and when it is
// over, however that came, logs and counts it.
func (s *Server) observe(c *gin.Context) {
	start := time.Now()
	x := &exchange{c: c, id: requestID(c.Request.Header)}
	c.Request = c.Request.WithContext(s.traced(context.WithValue(c.Request.Context(), exchangeKey{}, x), x, start))
	h := c.Writer.Header()
	h.Set(headerRequestID, x.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	s.extend(c)
	s.metrics.inFlight.Inc()
	defer func() {
		r := recover()
		aborted := s.recovered(x, r)
		s.metrics.inFlight.Dec()
		s.tell(x, time.Since(start), aborted)
		if aborted {
			// The one way to end an answer that has begun so that its reader sees
			// it is not whole: net/http drops the connection.
			panic(http.ErrAbortHandler)
		}
	}()
	c.Next()
}

// recovered turns a panic into a problem, and reports whether it is too late.
func (s *Server) recovered(x *exchange, r any) (aborted bool) {
	if r == nil {
		return false
	}
	if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		p := x.fail(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
		x.defect = true
		if !x.c.Writer.Written() {
			s.extend(x.c)
			p.write(x.c)
			return false
		}
	}
	return true
}

func (s *Server) tell(x *exchange, took time.Duration, aborted bool) {
	status, r, code := x.c.Writer.Status(), x.c.Request, x.code
	if r.Context().Err() != nil && !x.defect && (aborted || status >= http.StatusInternalServerError) {
		// Whatever failed then failed because the call was cut short, or does not matter.
		status, code = statusClientGone, ""
	}
	route := x.c.FullPath()
	if route == "" {
		route = "unmatched"
	}
	method := knownMethod(r.Method)
	s.metrics.answered(method, route, status, took)
	defer x.endSpan(status, code, aborted) // after the log, which names the trace

	level := slog.LevelInfo
	switch {
	case status == http.StatusServiceUnavailable:
		level = slog.LevelWarn // it passes, and is Redis' or of the load: no defect of the service
	case status >= http.StatusInternalServerError || code == crawl.CodeInternal:
		level = slog.LevelError
	case route == "/healthz" || route == "/readyz" || route == "/metrics":
		level = slog.LevelDebug // probes would be most of the log
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 11)
	attrs = append(attrs,
		slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000), slog.String("request_id", x.id))
	if x.tenant != "" {
		attrs = append(attrs, slog.String("tenant", x.tenant))
	}
	if x.job != "" {
		attrs = append(attrs, slog.String("job_id", x.job))
	}
	if code != "" {
		attrs = append(attrs, slog.String("code", string(code)))
	}
	if id := x.traceID(); id.Key != "" {
		attrs = append(attrs, id)
	}
	if aborted {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if x.err != nil {
		attrs = append(attrs, slog.Any("err", x.err))
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// unknownMethod is what labels and logs have for a method that nobody knows.
const unknownMethod = "other"

// knownMethod keeps the methods that anybody may invent out of labels and logs.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return m
	}
	return unknownMethod
}

// requestID returns the caller's id for the request, if it is one that may be
// logged and sent back as it is, and a new one otherwise.
func requestID(h http.Header) string {
	const longest = 128
	id := h.Get(headerRequestID)
	if id == "" || len(id) > longest {
		return rand.Text()
	}
	for i := range len(id) {
		switch b := id[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-', b == '_', b == '.':
		default:
			return rand.Text()
		}
	}
	return id
}
