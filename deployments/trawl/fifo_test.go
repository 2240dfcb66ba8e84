//go:build unix

package main

import (
	"bufio"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"example.com/trawl/pkg/crawltest"
)

// A named pipe is written for its reader, and not read by the program itself.
func TestOutputFIFO(t *testing.T) {
	t.Parallel()
	site := crawltest.NewSite(t, scriptSite)
	t.Run("read", func(t *testing.T) {
		t.Parallel()
		fifo := makeFIFO(t)
		p := crawltest.Run(t, command, nil, "crawl", "--no-follow", "--delay", "0s", "-o", fifo, site.URL+"/a", site.URL+"/b")
		r, err := os.Open(fifo) // waits for the program
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		n := 0
		for lines := bufio.NewScanner(r); lines.Scan(); n++ {
		}
		if code := p.Wait(within); code != exitOK || n != 2 {
			t.Errorf("exit code %d, %d records", code, n)
		}
	})
	t.Run("unread", func(t *testing.T) {
		t.Parallel()
		fifo := makeFIFO(t)
		server := crawltest.NewHandlerSite(t, &oneJob{state: "running"})
		p := crawltest.Run(t, command, []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey},
			"crawl", "-o", fifo, "http://a.example/")
		server.Await(within, "/v1/jobs/j1/records", 1)
		p.Signal(syscall.SIGINT)
		if code := p.Wait(within); code != exitInterrupted {
			t.Errorf("exit code %d, want 130", code)
		}
		p.WaitFor(within, `(?m)^trawl: The output cannot be written to .*: nobody reads it$`)
		p.WaitFor(within, `(?m)^The job j1 was cancelled after 1 record; `)
	})
	t.Run("results unread", func(t *testing.T) {
		t.Parallel()
		fifo := makeFIFO(t)
		server := crawltest.NewHandlerSite(t, &oneJob{state: "completed"})
		p := crawltest.Run(t, command, []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey},
			"results", "-o", fifo, "j1")
		server.Await(within, "/v1/jobs/j1/records", 1)
		p.Signal(syscall.SIGINT)
		if code := p.Wait(within); code != exitInterrupted {
			t.Errorf("exit code %d, want 130", code)
		}
	})
}

func makeFIFO(t *testing.T) string {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("this machine has no named pipes: %v", err)
	}
	return fifo
}
