package fetch

import (
	"net/http"
	"strings"
	"time"

	"golang.org/x/text/encoding"
)

// Content is the body of a page while it is held, for [Request.Read].
type Content struct {
	// Body is valid UTF-8 without a byte order mark. It is another page's once Read has returned.
	Body []byte
	// HTML reports whether it is HTML or XHTML, and not another text.
	HTML bool
	// Encoding is what the body was in, and the queries of its links are in; nil is UTF-8.
	Encoding encoding.Encoding
}

// Validators are what a site said of a page that was fetched before, by which it can tell
// whether the page has changed since (RFC 9110 section 8.8). The zero value has none.
type Validators struct {
	ETag         string // as received, weak or not
	LastModified string // as received
}

const (
	maxETagBytes = 1 << 10
	maxDateBytes = 64
)

// ValidatorsOf returns the validators of an answer that can be sent another time. An ETag that is
// none by RFC 9110 section 8.8.3 is left out, and so is one of more than 1 KiB; so is a time
// that lies less than two seconds before the answer: it has no fractions, so that the page may
// have changed again since and have the same one.
func ValidatorsOf(h http.Header) Validators {
	var v Validators
	if tags := h["Etag"]; len(tags) == 1 && validETag(tags[0]) {
		v.ETag = tags[0]
	}
	const settled = 2 * time.Second
	if dates := h["Last-Modified"]; len(dates) == 1 && len(dates[0]) <= maxDateBytes {
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		if t, err := http.ParseTime(dates[0]); err == nil && now.Sub(t) >= settled {
			v.LastModified = dates[0]
		}
	}
	return v
}

// validETag reports whether s is an entity-tag. Bytes above ASCII are allowed in it.
func validETag(s string) bool {
	if len(s) > maxETagBytes {
		return false
	}
	s, opened := strings.CutPrefix(strings.TrimPrefix(s, "W/"), `"`)
	s, closed := strings.CutSuffix(s, `"`)
	if !opened || !closed {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}

// asking returns req with the validators, and whether it has any. What cannot be one was stored
// by somebody else, and is not sent.
func (v Validators) asking(req *http.Request) (*http.Request, bool) {
	_, err := http.ParseTime(v.LastModified)
	tagged, dated := validETag(v.ETag), err == nil && len(v.LastModified) <= maxDateBytes
	if !tagged && !dated {
		return req, false
	}
	r := *req
	r.Header = req.Header.Clone()
	if tagged {
		r.Header["If-None-Match"] = []string{v.ETag}
	}
	if dated {
		r.Header["If-Modified-Since"] = []string{v.LastModified}
	}
	return &r, true
}

// isText reports whether a media type that is no HTML is one of text, as far as [Request.Text]
// goes.
func isText(media string) bool {
	switch {
	case strings.HasPrefix(media, "text/"), strings.HasSuffix(media, "+json"), strings.HasSuffix(media, "+xml"):
		return true
	}
	return media == "application/json" || media == "application/xml"
}

// looksBinary reports whether a body that says it is text is none, by its first bytes: servers call
// text/plain what they do not know. UTF-16 has bytes that no other text has.
func looksBinary(b []byte, label string) bool {
	_, name := lookup(label)
	return binary(b) && !utf16BOM(b) && !strings.HasPrefix(name, "utf-16")
}

// read hands the page to whoever asked for it.
func (x *exchange) read() (Result, error) {
	res := x.result()
	c := Content{Body: x.decoded, HTML: x.html, Encoding: x.page.encoding}
	if err := x.req.Read(&res, c); err != nil {
		return x.outcome(), err
	}
	return res, nil
}
