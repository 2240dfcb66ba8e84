package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	at := call{self: "trawl", url: "https://trawl.example", job: "j1", inputs: []string{"http://a.example/", "http://b.example/"}}
	one := call{url: at.url, inputs: at.inputs[:1]}
	fields := func(code client.Code, names ...string) *client.Error {
		e := &client.Error{Code: code, Detail: "It is wrong."}
		for _, name := range names {
			e.Fields = append(e.Fields, client.FieldError{Field: name, Rule: "min", Message: "Give more."})
		}
		return e
	}
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, tt := range []struct {
		name string
		at   call
		err  error
		want string
	}{
		{
			"key", at, fields(client.CodeUnauthenticated), "The server at https://trawl.example does not know this key: " +
				"set TRAWL_KEY, or name a file with --key-file.",
		},
		{
			"no job", at, fields(client.CodeNotFound), "There is no job j1 at https://trawl.example for this key. " +
				"`trawl list` shows yours.",
		},
		{
			"no call", one, fields(client.CodeNotFound), "There is a server at https://trawl.example, but it does not " +
				"know this call: is it a Trawl server, and as new as this program?",
		},
		{
			"gone", at, &client.Error{Code: client.CodeExpired}, "The job j1 is gone: it was deleted, or its retention " +
				"is over.",
		},
		{
			"reused", at, &client.Error{Code: client.CodeIdempotencyKeyReused, JobID: "j0"}, "The --idempotency-key was " +
				"used before, for the job j0 with another input. Take a new key, or give the same input.",
		},
		{
			"not ended", at, fields(client.CodeJobNotTerminal), "The job j1 has not ended yet: wait with " +
				"`trawl status --wait j1` (it goes on only after `trawl resume` where it is paused), or end it with `trawl cancel j1`.",
		},
		{"invalid", at, fields(client.CodeInvalid), "This is not accepted: It is wrong."},
		{
			"fields", at,
			fields(client.CodeInvalid, "seeds[1]", "seeds", "seeds[7]", "max_pages", "include[3]", "tags[0]", "retention",
				"Idempotency-Key", "headers.X-A", "headers", "user_agent"),
			"This is not accepted:\nhttp://b.example/: Give more.\nthe URLs: Give more.\nseeds[7]: Give " +
				"more.\n--max-pages: Give more.\n" +
				"--include: Give more.\n--tag: Give more.\nretention: Give more.\n--idempotency-key: Give more.\n" +
				"--header X-A: Give more.\n--header: Give more.\n--user-agent: Give more.",
		},
		{"seed", one, fields(client.CodeInvalid, "seed_url"), "This is not accepted:\nhttp://a.example/: Give more."},
		{
			"source", one, fields(client.CodeSourceNotAllowed, "seed_url"), "The server refuses what may not be crawled " +
				"there:\nhttp://a.example/: Give more.",
		},
		{
			"quota", at, &client.Error{Code: client.CodeQuotaExceeded, Detail: "Too many jobs.", RetryAfter: 30 * time.Second},
			"The server at https://trawl.example takes nothing now: Too many jobs. Try again in 30s.",
		},
		{
			"unavailable", at, &client.Error{Code: client.CodeUnavailable, Detail: "No store."}, "The server at " +
				"https://trawl.example takes nothing now: No store. Try again later.",
		},
		{
			"internal", at, &client.Error{Code: client.CodeInternal, Detail: "It is broken.", RequestID: "r9"},
			"The server at https://trawl.example answers internal: It is broken. (request r9)",
		},
		{
			"newer code", at, &client.Error{Code: "brand_new", Detail: "Who knows."}, "The server at " +
				"https://trawl.example answers brand_new: Who knows.",
		},
		{
			"refused", at, dial(syscall.ECONNREFUSED), "Nothing answers at https://trawl.example. Is it running? " +
				"`trawl up` starts one; --url or TRAWL_URL names another.",
		},
		{
			"no way", at, dial(syscall.EHOSTUNREACH), "There is no way to https://trawl.example from here. Is this " +
				"machine online?",
		},
		{
			"no host", at, &net.DNSError{Name: "trawl.example", IsNotFound: true}, "There is no host trawl.example. Is " +
				"https://trawl.example spelled right? --url or TRAWL_URL names another.",
		},
		{
			"dns", at, &net.DNSError{Name: "trawl.example", IsTimeout: true}, "The address of trawl.example cannot be " +
				"looked up now (DNS). Is this machine online?",
		},
		{
			"certificate", at, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
			"The certificate of https://trawl.example does not hold: x509: certificate signed by unknown authority",
		},
		{
			"no tls", at, http.ErrSchemeMismatch, "What answers at https://trawl.example does not speak TLS: is it " +
				"http:// there?",
		},
		{
			"slow", at, context.DeadlineExceeded, "The server at https://trawl.example does not answer in time. Try " +
				"again; --url or TRAWL_URL names another.",
		},
		{
			"proxy", at, &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial(syscall.ECONNREFUSED)},
			"The proxy that HTTPS_PROXY or HTTP_PROXY names does not work: dial tcp: connect: connection refused. " +
				"Correct it, or name the host of https://trawl.example in NO_PROXY.",
		},
		{"other", at, io.ErrUnexpectedEOF, "The server at https://trawl.example cannot be asked: read: unexpected EOF"},
		{"inside", call{}, io.ErrUnexpectedEOF, "The crawler inside this process does not answer: read: unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.at.explain(fmt.Errorf("read: %w", tt.err))
			if diff := cmp.Diff(tt.want, got.Error()); diff != "" {
				t.Error(diff)
			}
			if !errors.Is(got, tt.err) {
				t.Error("the cause is lost")
			}
		})
	}
}

// What is nobody's fault is not explained away: run tells it by what it is.
func TestExplainLeaves(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, context.Canceled, &outputError{err: &os.PathError{Op: "write", Err: syscall.EPIPE}}} {
		if got := (call{}).explain(err); got != err { //nolint:errorlint // it is to be the very same
			t.Errorf("%v became %v", err, got)
		}
	}
	if !isBrokenPipe(fmt.Errorf("x: %w", &os.PathError{Op: "write", Err: syscall.EPIPE})) {
		t.Error("a broken pipe is not known")
	}
	if isBrokenPipe(&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}) {
		t.Error("a broken connection is taken for an output that nobody reads")
	}
}

// runHere runs the program in this process and returns its exit code and what it wrote.
func runHere(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	p := program{args: args, environ: environ, stdout: &out, stderr: &err}
	code = p.run(t.Context())
	return code, out.String(), err.String()
}

// A server is a stranger, too: what it sends never reaches the terminal as a command.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	const evil = `\u001b]0;owned\u0007\u009b31m\u202e`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		job := `{"job_id": "j` + evil + `", "state": "running` + evil + `", "waiting_for": "` + evil +
			`", "error": "` + evil + `", "failed_by_type": {"` + evil + `": 1}, "tags": ["` + evil +
			`"], "spec": {"seed_url": "` + evil + `"}}`
		items := func(item string) { _, _ = io.WriteString(w, `{"items": [`+item+`], "has_more": false}`) }
		switch {
		case strings.HasSuffix(r.URL.Path, "/records"):
			items(`{"seq": 1, "url": "http://a/` + evil + `", "title": "` + evil + `"}`)
		case strings.HasSuffix(r.URL.Path, "/urls"):
			items(`{"url": "` + evil + `", "state": "` + evil + `", "reason": "` + evil + `", "rule": "` + evil + `"}`)
		case strings.HasSuffix(r.URL.Path, "/errors"):
			items(`{"url": "` + evil + `", "error_type": "` + evil + `", "message": "` + evil + `"}`)
		case strings.Contains(r.URL.Path, "/refused"):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"code": "invalid`+evil+`", "detail": "`+evil+`"}`)
		case r.URL.Path == "/v1/jobs":
			items(job)
		default:
			_, _ = io.WriteString(w, job)
		}
	}))
	t.Cleanup(server.Close)
	env := []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey}
	for _, tt := range []struct {
		code int
		args []string
	}{
		{exitOK, []string{"status", "j1"}},
		{exitOK, []string{"list"}},
		{exitOK, []string{"cancel", "j1"}},
		{exitOK, []string{"pause", "j1"}},
		{exitOK, []string{"resume", "j1"}},
		{exitOK, []string{"retry", "j1"}},
		{exitOK, []string{"errors", "j1"}},
		{exitOK, []string{"urls", "j1"}},
		{exitOK, []string{"results", "j1", "--format", "text"}},
		{exitFailed, []string{"status", "refused"}},
		{exitFailed, []string{"status", "refused\x1b[31m"}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runHere(t, env, tt.args...)
			if got := stdout + stderr; code != tt.code || got == "" || hostile.MatchString(got) {
				t.Errorf("exit code %d, want %d; written %q", code, tt.code, got)
			}
		})
	}
}
