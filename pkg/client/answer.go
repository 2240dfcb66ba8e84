package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	jsonType    = "application/json"
	ndjsonType  = "application/x-ndjson"
	problemType = "application/problem+json"

	// maxAnswer bounds an answer that is decoded, in bytes. A page of records has 8 MiB of
	// content at most, or is one record: that of a hostile page, 5 MiB of control characters
	// kept in each format, has some 80 MiB once JSON has escaped them.
	maxAnswer = 128 << 20
	// maxProblem bounds a refusal, in bytes: one with all faults of a long submission has
	// some tens of KiB.
	maxProblem = 1 << 20
	// maxExcerpt is how much an error shows of what it does not know, in characters.
	maxExcerpt = 160
	// maxCleaned is how much of it is looked at, in bytes: with room for what is not shown.
	maxCleaned = 8 * maxExcerpt

	// maxRetryAfter bounds what the service may ask to wait. A proxy that names next year
	// has a wrong clock.
	maxRetryAfter = time.Hour
)

// refusal returns nil for an answer of success, and the error that any other one is.
func (c *Client) refusal(resp *http.Response) error {
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return nil
	case resp.StatusCode < 400 && resp.Header.Get("Location") != "":
		return c.redirect(resp)
	}
	data, err := c.body(resp, maxProblem)
	if err != nil {
		return err
	}
	if media(resp) != problemType {
		return c.foreign(resp, data, "it should be a refusal as "+problemType)
	}
	e := &Error{}
	if err := json.Unmarshal(data, e); err != nil || e.Code == "" {
		return c.foreign(resp, data, "it is no problem with a code")
	}
	e.Status, e.RetryAfter = resp.StatusCode, wished(resp.Header, time.Now())
	// The texts end up on terminals and in logs.
	e.Code, e.Detail, e.RequestID = Code(c.clean(string(e.Code))), c.clean(e.Detail), c.clean(e.RequestID)
	for i, f := range e.Fields {
		e.Fields[i] = FieldError{Field: c.clean(f.Field), Rule: c.clean(f.Rule), Message: c.clean(f.Message)}
	}
	return e
}

// redirect is the error of an answer that points elsewhere: an API does not redirect,
// and the key is for this address alone.
func (c *Client) redirect(resp *http.Response) error {
	to := resp.Header.Get("Location")
	if u, err := resp.Location(); err == nil {
		to = u.Redacted()
	}
	return fmt.Errorf("the address redirects (%d) to %q, which is not followed, so that the key goes nowhere else; "+
		"if that is the service, give its address", resp.StatusCode, c.excerpt(to))
}

// decode reads an answer of JSON into v.
func (c *Client) decode(resp *http.Response, v any) error {
	data, err := c.body(resp, maxAnswer)
	switch {
	case err != nil:
		return err
	case media(resp) != jsonType:
		return c.foreign(resp, data, "it should be "+jsonType)
	case len(bytes.TrimSpace(data)) == 0:
		return c.foreign(resp, data, "it is empty")
	}
	if err := json.Unmarshal(data, v); err != nil {
		a := c.foreign(resp, data, c.excerpt(err.Error()))
		var whole json.RawMessage
		if a.cut = errors.Is(json.NewDecoder(bytes.NewReader(data)).Decode(&whole), io.ErrUnexpectedEOF); a.cut {
			a.text = "it ends in the middle"
		}
		return a
	}
	return nil
}

// body reads the whole body of an answer of at most limit bytes.
func (c *Client) body(resp *http.Response, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, c.lost("the answer of "+c.base+" was cut short", err)
	case int64(len(data)) > limit:
		return nil, c.foreign(resp, data, fmt.Sprintf("it is larger than %d MiB", limit>>20))
	}
	return data, nil
}

// lost is the error of an answer that did not come, or not whole. text says so.
func (c *Client) lost(text string, err error) *transportError {
	return &transportError{text: text, cause: c.clean(err.Error()), err: err}
}

// foreign is the error of an answer that the service does not give. text says why.
func (c *Client) foreign(resp *http.Response, data []byte, text string) *answerError {
	return &answerError{
		base: c.base, status: resp.StatusCode, media: c.excerpt(resp.Header.Get("Content-Type")), text: text,
		excerpt: c.excerpt(string(data[:min(len(data), maxCleaned)])), retryAfter: wished(resp.Header, time.Now()),
	}
}

// clean makes a text of somebody else fit for a line on a terminal, and conceals the key.
func (c *Client) clean(s string) string { return c.conceal(printable(s)) }

// printable returns s on one line, without anything that a terminal might obey.
func printable(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool {
		return !unicode.IsPrint(r) || r == ' '
	}), " ")
}

// excerpt returns the beginning of s, cleaned.
func (c *Client) excerpt(s string) string { return beginning(c.clean(s[:min(len(s), maxCleaned)])) }

func beginning(s string) string {
	if r := []rune(s); len(r) > maxExcerpt {
		return string(r[:maxExcerpt]) + "…"
	}
	return s
}

func media(resp *http.Response) string {
	m, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return m
}

// wished reads Retry-After, as seconds or as a date, see RFC 9110 section 10.2.3. What is
// no such thing, or over, is no wish.
func wished(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseUint(v, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent // by the clock that made the date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
