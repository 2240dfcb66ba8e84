package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"example.com/trawl/pkg/crawl"
)

// Codes that only HTTP has; the others are crawl's.
const (
	codeMethodNotAllowed     crawl.Code = "method_not_allowed"
	codeUnsupportedMediaType crawl.Code = "unsupported_media_type"
	codeCrossOrigin          crawl.Code = "cross_origin" // of /monitor only, which browsers open
)

// statuses is the one table of what a code is over HTTP. A code that is not in
// it does not belong to this edge and is answered as internal.
var statuses = map[crawl.Code]int{
	crawl.CodeMalformed:        http.StatusBadRequest,
	crawl.CodeUnauthenticated:  http.StatusUnauthorized,
	codeCrossOrigin:            http.StatusForbidden,
	crawl.CodeNotFound:         http.StatusNotFound,
	codeMethodNotAllowed:       http.StatusMethodNotAllowed,
	crawl.CodeKeyReused:        http.StatusConflict,
	crawl.CodeJobNotTerminal:   http.StatusConflict,
	crawl.CodeWrongState:       http.StatusConflict,
	crawl.CodeTenantExists:     http.StatusConflict,
	crawl.CodeExpired:          http.StatusGone,
	crawl.CodeBodyTooLarge:     http.StatusRequestEntityTooLarge,
	codeUnsupportedMediaType:   http.StatusUnsupportedMediaType,
	crawl.CodeInvalid:          http.StatusUnprocessableEntity,
	crawl.CodeSourceNotAllowed: http.StatusUnprocessableEntity,
	crawl.CodeRateLimited:      http.StatusTooManyRequests,
	crawl.CodeQuotaExceeded:    http.StatusTooManyRequests,
	crawl.CodeUnavailable:      http.StatusServiceUnavailable,
	crawl.CodeOverloaded:       http.StatusServiceUnavailable,
	crawl.CodeInternal:         http.StatusInternalServerError,
}

// defaultRetryAfter is what a fault that will pass says when it names no time
// itself: long enough for a failover of Redis to be over at the second try.
const defaultRetryAfter = 2 * time.Second

const problemType = "application/problem+json"

// problem is a fault as RFC 9457 has it. It is an error too, since huma writes
// the errors that handlers return.
type problem struct {
	Type      string             `json:"type" doc:"Always about:blank: code tells problems apart."`
	Title     string             `json:"title" doc:"The name of the HTTP status."`
	Status    int                `json:"status"`
	Code      crawl.Code         `json:"code" doc:"Stable name of the problem; branch on it."`
	Detail    string             `json:"detail" doc:"For a person: what happened and what to do."`
	RequestID string             `json:"request_id" doc:"As in X-Request-ID and in the log of the service."`
	Errors    []crawl.FieldFault `json:"errors,omitempty" doc:"Every fault of the input, each with its field and rule."`
	JobID     string             `json:"job_id,omitempty" doc:"The job that the conflict is about."`
	ExpiredAt *string            `json:"expired_at,omitempty" format:"date-time"`
	Limit     string             `json:"limit,omitempty" doc:"Of 429: the bound that was met, as in a tenant's quota."`
	LimitMax  int64              `json:"limit_max,omitempty" doc:"Of 429: what that bound is."`
	Failing   []string           `json:"failing,omitempty" doc:"Of /readyz only: what is not ready, as redis, redis_memory, redis_rights or process."`

	header http.Header
}

// Error implements error.
func (p *problem) Error() string { return string(p.Code) + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *problem) GetHeaders() http.Header { return p.header }

// ContentType implements huma.ContentTypeFilter.
func (p *problem) ContentType(string) string { return problemType }

// problemOf translates an error for a client. What is no fault of this edge is
// internal, and its text stays in the log.
func problemOf(err error, requestID string) *problem {
	var f *crawl.Fault
	if !errors.As(err, &f) || statuses[f.Code] == 0 || f.Code == crawl.CodeInternal {
		f = crawl.Faultf(crawl.CodeInternal,
			"Something in the service is broken. Report the request_id to whoever runs it; trying again may help.")
	}
	status := statuses[f.Code]
	p := &problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: f.Code, Detail: f.Message,
		RequestID: requestID, Errors: f.Fields, JobID: f.JobID, ExpiredAt: timeUnlessZero(f.At),
		Limit: f.Limit, LimitMax: f.LimitMax,
		header: http.Header{},
	}
	if f.Code == crawl.CodeNotFound {
		// One text for everything that is not there, so that no difference tells
		// a malformed id from another tenant's job or from a path without a route.
		p.Detail = "There is nothing at this address for this key. Check the path and the id."
		p.JobID, p.Errors, p.ExpiredAt, p.Limit, p.LimitMax = "", nil, nil, "", 0
	}
	switch status {
	case http.StatusUnauthorized:
		p.header.Set("WWW-Authenticate", `Bearer realm="trawl"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		wait := f.RetryAfter
		if wait <= 0 {
			wait = defaultRetryAfter
		}
		// Rounded up: a client that comes a moment too early is refused again.
		p.header.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
	return p
}

// write answers p from a place that huma does not reach.
func (p *problem) write(c *gin.Context) {
	for k, v := range p.header {
		c.Writer.Header()[k] = v
	}
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers cannot fail to encode
		panic(err)
	}
	c.Data(p.Status, problemType, append(body, '\n'))
	c.Abort()
}
