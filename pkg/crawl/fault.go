package crawl

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code names a kind of fault. Codes are part of the contract: clients branch on
// them, so a code is never renamed or reused.
type Code string

// Codes of the HTTP contract.
const (
	CodeMalformed        Code = "malformed"              // not JSON, a bad header, a bad cursor
	CodeUnauthenticated  Code = "unauthenticated"        // no key, or one that is not known
	CodeNotFound         Code = "not_found"              // no such thing, or another tenant's
	CodeKeyReused        Code = "idempotency_key_reused" // the key named another input before
	CodeJobNotTerminal   Code = "job_not_terminal"       // asks for what only an ended job has
	CodeWrongState       Code = "wrong_state"            // not possible in the job's state
	CodeExpired          Code = "expired"                // the job's retention is over
	CodeInvalid          Code = "invalid"                // well-formed, but breaks a rule
	CodeSourceNotAllowed Code = "source_not_allowed"     // outside what the tenant may crawl
	CodeRateLimited      Code = "rate_limited"
	CodeQuotaExceeded    Code = "quota_exceeded"
	CodeUnavailable      Code = "unavailable" // the store does not answer
	CodeOverloaded       Code = "overloaded"  // the store answers, but takes no more
	CodeInternal         Code = "internal"    // a defect of ours
	CodeTenantExists     Code = "tenant_exists"
)

// Codes that name why a page failed; they are its error_type. An HTTP status of
// 400 or more is [HTTPCode].
const (
	CodeBodyTooLarge       Code = "body_too_large" // also of a submission
	CodeTimeout            Code = "timeout"
	CodeDNS                Code = "dns"
	CodeTLS                Code = "tls"
	CodeConnection         Code = "connection"                   // refused, reset, unreachable
	CodeTruncated          Code = "truncated"                    // fewer bytes than were announced
	CodeBadResponse        Code = "bad_http_response"            // not HTTP
	CodeContentEncoding    Code = "unsupported_content_encoding" // or a body that does not decode
	CodePrivateAddress     Code = "private_address"              // the guard refused the connection
	CodeRedirectLoop       Code = "redirect_loop"
	CodeTooManyRedirects   Code = "too_many_redirects"
	CodeBadRedirect        Code = "bad_redirect"  // a Location that is absent or no http URL
	CodeInvalidURL         Code = "invalid_url"   // a URL that cannot be fetched as given
	CodeWorkerLost         Code = "worker_lost"   // its worker died each time it was tried
	CodeMislabelledNotHTML Code = "not_html"      // says HTML, carries a PDF, an archive or an image
	CodeMissingField       Code = "missing_field" // lacks a value that the job requires
	CodeTooComplex         Code = "too_complex"   // HTML that would take too much memory or time as a tree
)

// HTTPCode returns the code of a page that was answered with the given status,
// for example http_404.
func HTTPCode(status int) Code { return Code(fmt.Sprintf("http_%d", status)) }

// FieldFault is one fault of one input field.
type FieldFault struct {
	// Field is the path of the field as the caller wrote it, for example
	// urls[3] or fields.title.selector.
	Field string `json:"field"`
	// Rule is the stable name of the rule that was broken, for example
	// required, max, enum, unknown, source_not_allowed.
	Rule string `json:"rule"`
	// Message says what to do, in words for a person.
	Message string `json:"message"`
}

// Fault is the one typed error that crosses package boundaries. Each edge
// translates it once: HTTP into a problem document, a worker into the page's
// recorded error. Whatever is no Fault is a defect and loses its text there.
type Fault struct {
	Code    Code
	Message string // for a person: what happened and what to do; no internal text
	Fields  []FieldFault
	// RetryAfter is how long a caller should wait before the same call can
	// succeed; zero says nothing.
	RetryAfter time.Duration
	// Temporary reports whether a page that failed like this is worth another try.
	Temporary bool
	Status    int    // the HTTP status that a page was answered with; 0 without an answer
	JobID     string // of the job that a conflict is about
	// Limit names the bound that was met, as in [Quota]; LimitMax is what it is.
	Limit    string
	LimitMax int64
	At       time.Time // when the job expired
	Err      error     // the cause, for logs only
}

// Error implements error. It carries the cause and is therefore for logs; show
// people Message.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(string(f.Code))
	if f.Message != "" {
		b.WriteString(": " + f.Message)
	}
	for _, ff := range f.Fields {
		b.WriteString("; " + ff.Field + ": " + ff.Message)
	}
	if f.Err != nil {
		b.WriteString(": " + f.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Faultf makes a fault of the given code with a message for people.
func Faultf(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the first Fault in err's tree, CodeInternal when
// there is none, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var f *Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return CodeInternal
}
