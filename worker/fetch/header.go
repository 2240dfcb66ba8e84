package fetch

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// notSettable has the header fields that a request may not add, in lower case. They
// are refused when a job is submitted (crawl.Spec); that they are refused here
// as well keeps a plan that was stored by another version from changing what the
// crawler says of itself, of its connection, or of what it asks for.
var notSettable = set(
	"accept-encoding",
	"cookie2",
	"host",
	"user-agent",
	// The connection and its framing, RFC 9110 section 7.6.1.
	"connection",
	"content-encoding",
	"content-length",
	"expect",
	"http2-settings",
	"keep-alive",
	"te",
	"trailer",
	"transfer-encoding",
	"upgrade",
	// These ask for less than the page.
	"if-match",
	"if-modified-since",
	"if-none-match",
	"if-range",
	"if-unmodified-since",
	"range",
)

// checkHeader returns the fault of a header field that must not be sent. Its message
// never repeats a value, which may be a secret.
func checkHeader(name, value string) (fault crawl.FieldFault, ok bool) {
	lower := strings.ToLower(name)
	fault.Field = "headers." + clip(printable(name), 60)
	switch {
	case !isToken(name):
		fault.Rule, fault.Message = "pattern", "must be named by letters, digits and hyphens."
	case notSettable[lower] || strings.HasPrefix(lower, "proxy-"):
		fault.Rule, fault.Message = "forbidden", "cannot be set; the crawler decides about it."
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		fault.Rule, fault.Message = "pattern", "must have no control characters in its value."
	default:
		return crawl.FieldFault{}, true
	}
	return fault, false
}

// checkUserAgent returns the fault of a User-Agent that must not be sent.
func checkUserAgent(field, value string) (fault crawl.FieldFault, ok bool) {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return crawl.FieldFault{
			Field: field, Rule: "visible_ascii", Message: "must be visible ASCII characters and spaces.",
		}, false
	}
	return crawl.FieldFault{}, true
}

// requestHeader returns the header of a request: base, and over it the user agent
// and the fields that the request adds.
func requestHeader(base http.Header, userAgent string, extra http.Header) (http.Header, error) {
	h := make(http.Header, len(base)+len(extra)+1) // + 1: colly may add one
	maps.Copy(h, base)
	if userAgent == "" && len(extra) == 0 {
		return h, nil
	}
	var faults []crawl.FieldFault
	if fault, ok := checkUserAgent("user_agent", userAgent); !ok {
		faults = append(faults, fault)
	} else if userAgent != "" {
		h["User-Agent"] = []string{userAgent}
	}
	own := make(http.Header, len(extra)) // a name in two spellings is one field of two lines
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		for _, v := range extra[name] {
			if fault, ok := checkHeader(name, v); !ok {
				faults = append(faults, fault)
			}
			own.Add(name, v)
		}
	}
	maps.Copy(h, own)
	if len(faults) > 0 {
		return nil, &crawl.Fault{
			Code:    crawl.CodeInvalid,
			Message: "The headers of the job cannot be sent; see the fault of each.",
			Fields:  faults,
		}
	}
	return h, nil
}

// maxFields bounds the fields of an answer's header: each takes some hundred bytes here,
// however few it has on the wire. It is the bound of curl.
const maxFields = 5000

// checkFields fails, and closes the body, when an answer has more than maxFields.
func checkFields(res *http.Response) error {
	n := 0
	for _, values := range res.Header {
		n += len(values)
	}
	if n <= maxFields {
		return nil
	}
	_ = res.Body.Close()
	return &crawl.Fault{
		Code: crawl.CodeBadResponse, Status: res.StatusCode,
		Message: "The answer has " + itoa(n) + " header fields; at most " + itoa(maxFields) + " are read.",
	}
}
