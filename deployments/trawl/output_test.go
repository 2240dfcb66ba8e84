package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

// A record is one line, however a gateway has laid it out.
func TestRecordIsOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := output{w: &out, format: formatNDJSON}
	if err := o.record(&client.Record{Raw: []byte("{\n  \"a\": \"x  y\",\n  \"b\": 1\n}\n")}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `{"a":"x  y","b":1}`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// full is a file on a disk that has room for so many bytes.
type full struct {
	*os.File
	room int
}

// Write implements io.Writer.
func (f *full) Write(b []byte) (int, error) {
	n, err := f.File.Write(b[:min(len(b), f.room)])
	f.room -= n
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// A disk that is full leaves whole lines alone.
func TestHalfLineIsTakenBack(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "out.ndjson")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := output{name: name, format: formatNDJSON, w: &full{file, 13}}
	record := &client.Record{Raw: []byte(`{"a":1}`)}
	if err := o.record(record); err != nil {
		t.Fatal(err)
	}
	if err := o.record(record); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the full disk is %v", err)
	}
	got, err := os.ReadFile(name)
	if want := "{\"a\":1}\n"; err != nil || string(got) != want || o.records != 1 {
		t.Errorf("the file holds %q (%v), want %q; %d records", got, err, want, o.records)
	}
}

// A server that answers no page is not waited for; a reader that takes its time is.
func TestPaged(t *testing.T) {
	t.Parallel()
	const bound = 20 * time.Second
	pause := func(d time.Duration) { <-time.After(d) }
	for _, tt := range []struct {
		name         string
		within       time.Duration
		server, read time.Duration // until the next item comes, and until it is taken
		want         error
	}{
		{"in time", bound, bound - 1, bound - 1, nil},
		{"slow reader", bound, time.Second, time.Hour, nil},
		{"slow server", bound, bound + 1, 0, context.DeadlineExceeded},
		{"followed", 0, time.Hour, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				walk := func(ctx context.Context) iter.Seq2[int, error] {
					return func(yield func(int, error) bool) {
						for i := range 3 {
							select {
							case <-ctx.Done():
								yield(0, fmt.Errorf("read: %w", ctx.Err()))
								return
							case <-time.After(tt.server):
							}
							if !yield(i, nil) {
								return
							}
						}
					}
				}
				var (
					got  []int
					last error
				)
				for i, err := range paged(t.Context(), tt.within, walk) {
					if last = err; err == nil {
						got = append(got, i)
					}
					pause(tt.read)
				}
				if last != tt.want || (tt.want == nil) != (len(got) == 3) { //nolint:errorlint // bare by contract
					t.Errorf("read %v and then %v, want %v", got, last, tt.want)
				}
			})
		})
	}
}

// Nothing that is said is a command to the terminal.
func TestSayfCleans(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	s := session{stderr: &said}
	s.sayf("The job %s\nis gone.", "j\x1b]0;owned\x07\u009b31m")
	if got := said.String(); hostile.MatchString(got) || strings.Count(got, "\n") != 2 || !strings.Contains(got, "owned") {
		t.Errorf("it says %q", got)
	}
}

// URLs may stand on both sides of flags; what is not understood is left to the parser.
func TestTogether(t *testing.T) {
	t.Parallel()
	parser, _, err := (&session{}).parser()
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                 "",
		"--version":                        "--version",
		"crawl a --max-pages 3 b":          "crawl --max-pages 3 a b",
		"crawl a --max-pages=3 b -v c":     "crawl --max-pages=3 -v a b c",
		"crawl a -o f b":                   "crawl -o f a b",
		"crawl a -of b":                    "crawl -of a b",
		"crawl a -vo f b":                  "crawl -vo f a b",
		"crawl a -v b":                     "crawl -v a b",
		"crawl a -o - b":                   "crawl -o - a b",
		"crawl a --no-follow b -- -c":      "crawl --no-follow -- a b -c",
		"crawl a --max-pages":              "crawl a --max-pages",
		"crawl a --max-pages -1 b":         "crawl --max-pages -1 a b",
		"cancel a --json b --url http://s": "cancel --json --url http://s a b",
		"status a --json b":                "status a --json b",
		"up a --listen b":                  "up a --listen b",
	} {
		got := together(parser, strings.Fields(args))
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
}

// What is no text is refused before anything is sent.
func TestTextFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"--tag", []string{"--tag", "caf\xe9"}},
		{"--tag", []string{"--tag=caf\xe9"}},
		{"-o", []string{"-o", "caf\xe9"}},
		{"argument 3", []string{"http://a.example/caf\xe9"}},
	} {
		code, _, stderr := runHere(t, nil, append([]string{"crawl", "http://a.example/"}, tt.args...)...)
		if want := "trawl: " + tt.want + ": this is no UTF-8 text"; code != exitFailed || !strings.HasPrefix(stderr, want) {
			t.Errorf("exit code %d, it says %q, want %q", code, stderr, want)
		}
	}
}
