// Command trawl is Trawl for a person at a terminal: it runs all of Trawl in one process
// (trawl up), crawls a site and shows how that goes (trawl crawl), tries what a page gives
// (trawl extract), and asks a server about its jobs (trawl status, results, errors, urls,
// cancel and list) and about what they found together (trawl collections, items and analytics).
//
// It decides little itself. The all-in-one is package allinone, calls to a server are
// package client, the bar is package watch; here are the command line, what is said to a
// person, and the exit code: 0 for all well, 1 for a crawl that has errors or was cut
// short, 2 for what failed or was refused, 130 after Ctrl-C.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A reader that leaves (| head) shall fail the write, which ends the job, and not the process.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	p := program{
		name: invocation(os.Args[0]), args: os.Args[1:], environ: os.Environ(),
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, signals: signals,
	}
	os.Exit(p.run(context.Background()))
}
