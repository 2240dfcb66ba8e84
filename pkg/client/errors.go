package client

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Code is the stable name of a problem. It is an error, so that
// errors.Is(err, client.CodeNotFound) asks for it.
type Code string

// The codes of the service.
const (
	CodeMalformed            Code = "malformed"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeNotFound             Code = "not_found" // also of another tenant's job
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeIdempotencyKeyReused Code = "idempotency_key_reused"
	CodeJobNotTerminal       Code = "job_not_terminal"
	CodeWrongState           Code = "wrong_state"
	CodeExpired              Code = "expired"
	CodeBodyTooLarge         Code = "body_too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeInvalid              Code = "invalid"
	CodeSourceNotAllowed     Code = "source_not_allowed"
	CodeRateLimited          Code = "rate_limited"
	CodeQuotaExceeded        Code = "quota_exceeded"
	CodeUnavailable          Code = "unavailable"
	CodeOverloaded           Code = "overloaded"
	CodeInternal             Code = "internal"
)

// Error implements error.
func (c Code) Error() string { return string(c) }

// Error is a refusal of the service: RFC 9457 as it tells it. Control characters in its
// texts became blanks.
type Error struct {
	Code       Code          `json:"code"`
	Status     int           `json:"status"` // of HTTP
	Detail     string        `json:"detail"` // for a person: what happened and what to do
	RequestID  string        `json:"request_id"`
	Fields     []FieldError  `json:"errors,omitempty"`    // every fault of the input
	JobID      string        `json:"job_id,omitempty"`    // that a conflict is about
	Limit      string        `json:"limit,omitempty"`     // of 429: the bound that was met, such as max_queued
	LimitMax   int64         `json:"limit_max,omitempty"` // and what it is
	ExpiredAt  time.Time     `json:"expired_at,omitzero"` // of a job that is gone
	RetryAfter time.Duration `json:"-"`                   // when to come again, at most an hour; 0 for never said
}

// FieldError is one fault of the input.
type FieldError struct {
	Field   string `json:"field"`
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// String says the fault as a person reads it.
func (f FieldError) String() string { return fmt.Sprintf("%s (%s): %s", f.Field, f.Rule, f.Message) }

// Error implements error. Several faults of the input have a line each.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		// Who runs the service finds the cause by it, and only there.
		b.WriteString(" (request_id " + e.RequestID + ")")
	}
	separator := "\n  "
	if len(e.Fields) == 1 {
		separator = " "
	}
	for _, f := range e.Fields {
		b.WriteString(separator + f.String())
	}
	return b.String()
}

// Is reports whether target is the code of e.
func (e *Error) Is(target error) bool { c, ok := target.(Code); return ok && c == e.Code }

// transportError says that no whole answer came.
type transportError struct {
	text  string
	cause string // the text of err, which may quote what was sent, fit to be shown
	err   error
}

func (e *transportError) Error() string { return e.text + ": " + e.cause }
func (e *transportError) Unwrap() error { return e.err }

// answerError says that an answer came which is not one of the service: of a proxy in
// between, or of something else at its address.
type answerError struct {
	base       string
	status     int
	media      string
	text       string // what is wrong with it
	excerpt    string
	cut        bool // it begins as one of the service and ends too early
	retryAfter time.Duration
}

func (e *answerError) Error() string {
	kind := e.media
	if kind == "" {
		kind = "no Content-Type"
	}
	begins := ""
	if e.excerpt != "" {
		begins = fmt.Sprintf(" and begins with %q", e.excerpt)
	}
	status := strings.TrimSpace(fmt.Sprintf("%d %s", e.status, http.StatusText(e.status)))
	return fmt.Sprintf("what answers at %s is not Trawl, or something in between answers for it: %s; "+
		"the answer is %s, %s%s", e.base, e.text, status, kind, begins)
}
