package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/trawl/pkg/client"
)

// failuref is [fmt.Errorf] for what a person reads as it is: whole sentences.
func failuref(format string, args ...any) error { return fmt.Errorf(format, args...) }

// call is what a request was about, for the words about its failure.
type call struct {
	url    string   // of the server; empty for the one inside this process
	job    string   // empty when it was about no single job
	inputs []string // the URLs of a submission, in its order
	fields string   // the file of --fields; empty for none
	byFlag bool     // whether --collection alone names the collection
	self   string   // how hints name this program

	collection string // that a call was about which was about no job
}

// callOf is a call to srv about a job, or about none.
func (s *session) callOf(srv *server, job string) call {
	return call{url: srv.url, job: job, self: s.self}
}

// server names the server in a sentence.
func (c call) server() string {
	if c.url == "" {
		return "the crawler"
	}
	return "the server at " + c.url
}

// explain puts into words what a call to the service failed of. The result wraps err.
func (c call) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || isBrokenPipe(err) {
		return err // somebody's wish, and no failure of the call
	}
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok {
		return &explained{c.connection(err), err}
	}
	return &explained{c.refusal(refusal), err}
}

// explained is an error in other words.
type explained struct {
	text string
	err  error
}

// Error implements error.
func (e *explained) Error() string { return e.text }

// Unwrap returns the error that the words are about.
func (e *explained) Unwrap() error { return e.err }

// refusal words what the service itself answered.
func (c call) refusal(e *client.Error) string {
	switch e.Code {
	case client.CodeUnauthenticated:
		return capitalised(c.server()) + " does not know this key: set TRAWL_KEY, or name a file with --key-file."
	case client.CodeNotFound:
		if c.collection != "" {
			return "There is no collection " + c.collection + " at " + c.url + " for this key. `" + c.self + " collections` shows yours."
		}
		if c.job == "" {
			return "There is a server at " + c.url + ", but it does not know this call: " +
				"is it a Trawl server, and as new as this program?"
		}
		return "There is no job " + c.job + " at " + c.url + " for this key. `" + c.self + " list` shows yours."
	case client.CodeExpired:
		return "The job " + c.job + " is gone" + since(e.ExpiredAt) + ": it was deleted, or its retention is over."
	case client.CodeIdempotencyKeyReused:
		return "The --idempotency-key was used before, for the job " + e.JobID +
			" with another input. Take a new key, or give the same input."
	case client.CodeJobNotTerminal:
		return "The job " + c.job + " has not ended yet: wait with `" + c.self + " status --wait " + c.job +
			"` (it goes on only after `" + c.self + " resume` where it is paused), or end it with `" + c.self + " cancel " + c.job + "`."
	case client.CodeWrongState:
		return e.Detail
	case client.CodeInvalid:
		return c.faults("This is not accepted:", e)
	case client.CodeSourceNotAllowed:
		return c.faults("The server refuses what may not be crawled there:", e)
	case client.CodeRateLimited, client.CodeQuotaExceeded, client.CodeUnavailable, client.CodeOverloaded:
		return capitalised(c.server()) + " takes nothing now: " + e.Detail + again(e.RetryAfter)
	default:
		text := capitalised(c.server()) + " answers " + string(e.Code) + ": " + e.Detail
		if e.RequestID != "" {
			text += " (request " + e.RequestID + ")"
		}
		return text
	}
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + clock(t)
}

func again(after time.Duration) string {
	if after <= 0 {
		return " Try again later."
	}
	return " Try again in " + after.Round(time.Second).String() + "."
}

// faults lists what is wrong with an input, one fault a line, by the names that it has on
// the command line.
func (c call) faults(title string, e *client.Error) string {
	if len(e.Fields) == 0 {
		return title + " " + e.Detail
	}
	var b strings.Builder
	b.WriteString(title)
	for _, f := range e.Fields {
		b.WriteString("\n" + c.origin(f.Field) + ": " + f.Message)
	}
	return b.String()
}

// flags are the fields of a submission that a flag is behind.
var flags = map[string]string{
	"max_pages": "--max-pages", "max_depth": "--max-depth", "time_limit": "--time-limit", "scope": "--scope",
	"include": "--include", "exclude": "--exclude", "concurrency": "--concurrency", "delay": "--delay", "tags": "--tag",
	"formats": "--keep", "main_content": "--main-content", "base_url": "--base-url", "columns": "--columns", "top_n": "--top",
	"sitemap": "--sitemap", "respect_robots": "--ignore-robots", "headers": "--header", "user_agent": "--user-agent",
	"Idempotency-Key": "--idempotency-key",
}

// origin returns what on the command line the field of a submission comes from: a URL, or
// a flag. A field of neither is returned as it is.
func (c call) origin(field string) string {
	name, rest, _ := strings.Cut(field, "[")
	switch part, _, _ := strings.Cut(name, "."); {
	case part == "collection" && c.byFlag:
		return "--collection"
	case c.fields != "" && slices.Contains([]string{"fields", "items", "list_pages", "collection"}, part):
		return c.fields + ": " + field
	}
	name, header, isHeader := strings.Cut(name, ".")
	switch name {
	case "seed_url", "seeds", "urls", "url":
		index, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
		if rest == "" {
			index, err = 0, nil
			if len(c.inputs) > 1 {
				return "the URLs"
			}
		}
		if err == nil && index >= 0 && index < len(c.inputs) {
			return c.inputs[index]
		}
	default:
		if c.collection != "" && flags[name] == "" {
			return "--where " + field // what is no other parameter is a facet
		}
		if flag, ok := flags[name]; ok {
			if isHeader {
				flag += " " + header
			}
			return flag
		}
	}
	return field
}

// connection words that no answer came, or one that makes no sense.
func (c call) connection(err error) string {
	if c.url == "" {
		return "The crawler inside this process does not answer: " + err.Error()
	}
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		timeout     net.Error
		proxy       *net.OpError
	)
	const other = "--url or TRAWL_URL names another."
	switch {
	case errors.As(err, &proxy) && proxy.Op == "proxyconnect":
		return "The proxy that HTTPS_PROXY or HTTP_PROXY names does not work: " + proxy.Err.Error() +
			". Correct it, or name the host of " + c.url + " in NO_PROXY."
	case errors.Is(err, syscall.ECONNREFUSED):
		return "Nothing answers at " + c.url + ". Is it running? `" + c.self + " up` starts one; " + other
	case errors.As(err, &dns) && dns.IsNotFound:
		return "There is no host " + dns.Name + ". Is " + c.url + " spelled right? " + other
	case errors.As(err, &dns):
		return "The address of " + dns.Name + " cannot be looked up now (DNS). Is this machine online?"
	case errors.As(err, &certificate):
		return "The certificate of " + c.url + " does not hold: " + certificate.Err.Error()
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "What answers at " + c.url + " does not speak TLS: is it http:// there?"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "There is no way to " + c.url + " from here. Is this machine online?"
	case errors.As(err, &timeout) && timeout.Timeout():
		return capitalised(c.server()) + " does not answer in time. Try again; " + other
	default:
		return capitalised(c.server()) + " cannot be asked: " + err.Error()
	}
}

func capitalised(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
