package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
)

const exampleKey = "an-example-key-0001"

// start runs a whole service, with a client of it, and a small site to crawl.
func start() (c *client.Client, site string, stop func()) {
	c, _, site, stop = startService()
	return c, site, stop
}

// startService also says where the service is. The site has three pages, of which one
// links to a page that is not there, and two that answer only when all is over.
func startService() (c *client.Client, address, site string, stop func()) {
	stopping := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, found := map[string]string{
			"/":       `<title>Home</title> <a href="/guide">guide</a>`,
			"/guide":  `<title>Guide</title> <a href="/terms">terms</a> <a href="/lost">lost</a>`,
			"/terms":  `<title>Terms</title>`,
			"/slow":   `<title>Slow</title>`,
			"/slower": `<title>Slower</title>`,
		}[r.URL.Path]
		switch {
		case !found:
			http.NotFound(w, r)
			return
		case strings.HasPrefix(r.URL.Path, "/slow"):
			select {
			case <-stopping:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, page)
	}))

	sources, err := crawl.ParseSources(srv.URL + "/")
	if err != nil {
		panic(err)
	}
	private, err := netguard.Parse("127.0.0.1")
	if err != nil {
		panic(err)
	}
	service, err := allinone.New(allinone.Options{
		Keys: map[string][]string{"acme": {exampleKey}}, Sources: sources, Private: private, HostConcurrency: 2,
		UserAgent: "TrawlExample/1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	if err := service.Start(context.Background()); err != nil {
		panic(err)
	}
	if c, err = client.New(service.URL(), exampleKey); err != nil {
		panic(err)
	}
	return c, service.URL(), srv.URL, func() {
		close(stopping)
		c.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := service.Stop(ctx); err != nil {
			panic(err)
		}
		srv.Close()
	}
}

// Crawl a site: submit, wait, read.
func Example() {
	c, site, stop := start() // in your program: c, err := client.New("http://127.0.0.1:8008", key)
	defer stop()
	ctx := context.Background()

	job, err := c.Submit(ctx, client.Spec{SeedURL: site + "/", MaxPages: 10, Concurrency: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended, err := c.Wait(ctx, job.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %d of %d pages\n", ended.State, ended.Accepted, ended.Total)
	for page, err := range c.Records(ctx, job.ID) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(page.Status, page.Title)
	}

	// Output:
	// completed_with_errors: 3 of 4 pages
	// 200 Home
	// 200 Guide
	// 200 Terms
}

// Read records while the job runs, as they come.
func ExampleClient_Records() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()

	job, err := c.Submit(ctx, client.Spec{URLs: []string{site + "/", site + "/guide"}, Concurrency: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for page, err := range c.Records(ctx, job.ID, client.Follow()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(page.Seq, page.Title)
	}

	// Output:
	// 1 Home
	// 2 Guide
}

// Which pages are missing, and why.
func ExampleClient_Errors() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()

	job, err := c.Submit(ctx, client.Spec{SeedURL: site + "/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for failed, err := range c.Errors(ctx, job.ID, client.Follow()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(strings.TrimPrefix(failed.SourceURL, site), failed.ErrorType, failed.Status)
		fmt.Println("linked on", strings.TrimPrefix(failed.DiscoveredOn, site))
	}

	// Output:
	// /lost http_404 404
	// linked on /guide
}

// A refusal has a code to branch on, and every fault of the input.
func ExampleError() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()

	_, err := c.Submit(ctx, client.Spec{SeedURL: site + "/", MaxPages: -1, Scope: "planet"})
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refused.Code, refused.Status)
		for _, fault := range refused.Fields {
			fmt.Println(fault.Field, "breaks the rule", fault.Rule)
		}
	}

	_, err = c.Job(ctx, "a-job-of-nobody")
	fmt.Println(errors.Is(err, client.CodeNotFound))
	fmt.Println(err)

	// Output:
	// invalid 422
	// max_pages breaks the rule min
	// scope breaks the rule enum
	// true
	// read job a-job-of-nobody: not_found: There is nothing at this address for this key. Check the path and the id.
}

// Stop a job; what it collected stays.
func ExampleClient_Cancel() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()

	job, err := c.Submit(ctx, client.Spec{URLs: []string{site + "/slow", site + "/slower"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended, err := c.Cancel(ctx, job.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ended.State, ended.StopReason, ended.Cancelled)

	// Output:
	// cancelled cancelled 2
}

// Try again what failed.
func ExampleClient_RetryFailed() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()

	job, err := c.Submit(ctx, client.Spec{URLs: []string{site + "/", site + "/lost"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = c.Wait(ctx, job.ID); err != nil {
		fmt.Println(err)
		return
	}
	for cursor := ""; ; { // one job has 10,000 URLs at most
		again, err := c.RetryFailed(ctx, job.ID, cursor)
		if err != nil {
			fmt.Println(err)
			return
		}
		ended, err := c.Wait(ctx, again.ID)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("of the same job:", again.RetryOf == job.ID, "- tried", ended.Total, "failed", ended.Failed)
		if cursor = again.NextCursor; cursor == "" {
			break
		}
	}

	// Output:
	// of the same job: true - tried 1 failed 1
}

// Submit what may have been submitted before, by this process or by another one.
func ExampleIdempotencyKey() {
	c, site, stop := start()
	defer stop()
	ctx := context.Background()
	spec := client.Spec{URLs: []string{site + "/"}}
	nightly := client.IdempotencyKey("nightly-2026-11-29")

	first, err := c.Submit(ctx, spec, nightly)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := c.Submit(ctx, spec, nightly)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the same job:", again.ID == first.ID, again.Replayed)

	spec.Tags = []string{"other"}
	_, err = c.Submit(ctx, spec, nightly)
	fmt.Println("another spec:", errors.Is(err, client.CodeIdempotencyKeyReused))

	// Output:
	// the same job: true true
	// another spec: true
}
