package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/client"
)

// stalling is a body that gives nothing until its request is given up, or for a while.
type stalling struct {
	ctx    context.Context //nolint:containedctx // it is that of the request
	after  time.Duration   // then the body ends; 0 for never
	closed *int
}

// Read implements io.Reader.
func (s *stalling) Read([]byte) (int, error) {
	var end <-chan time.Time
	if s.after > 0 {
		end = time.After(s.after)
	}
	select {
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	case <-end:
		return 0, io.EOF
	}
}

// Close implements io.Closer.
func (s *stalling) Close() error { *s.closed++; return nil }

// Whatever comes in place of a download is bounded in time, as any other answer; the
// download itself is not.
func TestResultStalls(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status  int // 0 for no answer at all
		media   string
		lasts   time.Duration // of the body; 0 for ever
		says    string        // of the error; "" for a download
		minutes int           // that it takes, with its repetitions
	}{
		"no answer":             {0, "", 0, "given up after 2 tries: no answer from " + base + " within 1m0s", 2},
		"a refusal":             {404, problemType, 0, "given up after 2 tries: the answer of " + base + " was cut short within 1m0s", 2},
		"a defect":              {500, problemType, 0, "given up after 2 tries: the answer of " + base + " was cut short within 1m0s", 2},
		"a page of a proxy":     {200, "text/html", 0, "it should be application/json", 1},
		"a download of an hour": {200, jsonType, time.Hour, "", 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				opened, closed := 0, 0
				_, c := newServiceFunc(t, func(_ int, r *http.Request) (*http.Response, error) {
					if tt.status == 0 {
						<-r.Context().Done()
						return nil, context.Cause(r.Context())
					}
					opened++
					resp, err := text(tt.status, tt.media, "").response()
					resp.Body, resp.ContentLength, resp.TransferEncoding = &stalling{r.Context(), tt.lasts, &closed}, -1, []string{"chunked"}
					return resp, err
				}, client.WithRetries(1))
				begin := time.Now()
				body, err := c.Result(t.Context(), "j1", client.JSON)
				if err == nil {
					_, err = io.Copy(io.Discard, body)
					body.Close()
				}
				took := time.Since(begin).Truncate(time.Minute)
				if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) ||
					took != time.Duration(tt.minutes)*time.Minute || opened != closed {
					t.Errorf("%v after %v; %d bodies, %d closed", err, took, opened, closed)
				}
			})
		})
	}
}

// Closing a download ends its request for good, also in a context that goes on.
func TestResultReleasesItsContext(t *testing.T) {
	t.Parallel()
	var of context.Context
	closed := 0
	_, c := newServiceFunc(t, func(_ int, r *http.Request) (*http.Response, error) {
		of = r.Context()
		resp, err := ok("").response()
		resp.Body = &stalling{of, 0, &closed}
		return resp, err
	})
	body, err := c.Result(t.Context(), "j1", client.JSON)
	if err != nil || of.Err() != nil {
		t.Fatalf("%v; the context of the download: %v", err, of.Err())
	}
	body.Close()
	if !errors.Is(of.Err(), context.Canceled) || closed != 1 {
		t.Errorf("after the close the context says %v; closed %d times", of.Err(), closed)
	}
}
