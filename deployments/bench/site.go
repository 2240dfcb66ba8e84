package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"example.com/trawl/pkg/crawltest/gensite"
)

// counting is a site that knows how many pages it served.
type counting interface {
	http.Handler
	Reset()
	Total() int64
	Distinct() int64
}

// siteOf makes the site that o asks for.
func siteOf(o options) (counting, error) {
	switch o.Site {
	case "", "generated":
		return gensite.New(o.Pages, o.Links, o.Bytes, o.Latency), nil
	case "uneven":
		return &uneven{Site: gensite.New(o.Pages, o.Links, o.Bytes, 0), mean: o.Latency}, nil
	case "articles":
		return newArticles(o.Pages, o.Links), nil
	case "manual":
		return &manual{Handler: http.FileServer(http.Dir(o.Manual))}, nil
	}
	return nil, fmt.Errorf("there is no site %q", o.Site)
}

// runSite serves a site until it is ended, on as many addresses of 127.0.0.0/8 as it has hosts, all on one port:
// 127.0.0.1 is the first. /-/reset forgets the hits, /-/total answers how many pages and how many different ones
// were served. The one line that it writes is the port.
func runSite(ctx context.Context, o options) error {
	site, err := siteOf(o)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", site)
	mux.HandleFunc("/-/reset", func(http.ResponseWriter, *http.Request) { site.Reset() })
	mux.HandleFunc("/-/total", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, site.Total(), site.Distinct()) // who hung up is told nothing
	})
	var lc net.ListenConfig
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, o.Hosts)
	port := "0"
	for i := range max(1, o.Hosts) {
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(hostOf(i), port))
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		go func() { ended <- srv.Serve(l) }()
	}
	if _, err := fmt.Fprintln(os.Stdout, port); err != nil {
		return fmt.Errorf("tell the port: %w", err)
	}
	return <-ended
}

// hostOf is the address of a site's i-th host, from 0.
func hostOf(i int) string { return fmt.Sprintf("127.0.%d.%d", i/250, 1+i%250) }

// site is a site that is served in a process of its own.
type site struct {
	*child
	port string
}

// newSite starts a site.
func (r *rig) newSite(ctx context.Context, o options) (*site, error) {
	c, err := r.startSelf(ctx, o, "site")
	if err != nil {
		return nil, err
	}
	s := &site{child: c}
	if s.port, err = c.line(); err != nil {
		c.stop()
		return nil, fmt.Errorf("the site did not start: %w", err)
	}
	return s, nil
}

// url is that of the site's i-th host, from 0.
func (s *site) url(i int) string { return "http://" + net.JoinHostPort(hostOf(i), s.port) }

// reset forgets what was served.
func (s *site) reset(ctx context.Context) error {
	_, err := ask(ctx, s.url(0)+"/-/reset")
	return err
}

// hits answers how many pages were served since the last reset, and how many different ones.
func (s *site) hits(ctx context.Context) (total, distinct float64, err error) {
	text, err := ask(ctx, s.url(0)+"/-/total")
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscan(text, &total, &distinct); err != nil {
		return 0, 0, fmt.Errorf("hits of the site: %w", err)
	}
	return total, distinct, nil
}

// uneven is a generated site whose pages take from two thirds to four thirds of a time, each always
// the same.
type uneven struct {
	*gensite.Site
	mean time.Duration
}

// ServeHTTP implements [http.Handler].
func (u *uneven) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := fnv.New32a()
	_, _ = io.WriteString(h, r.URL.Path) // a hash takes all
	part := time.Duration(h.Sum32() % 1024)
	timer := time.NewTimer(u.mean*2/3 + u.mean*2/3*part/1023)
	defer timer.Stop()
	select {
	case <-timer.C:
		u.Site.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// manual is a folder of files as a site. It counts nothing.
type manual struct{ http.Handler }

// Reset does nothing.
func (*manual) Reset() {}

// Total is 0.
func (*manual) Total() int64 { return 0 }

// Distinct is 0.
func (*manual) Distinct() int64 { return 0 }

// answer answers the body of what a request is answered with, unless that is an error.
func answer(req *http.Request) (string, error) {
	c := &http.Client{Timeout: 30 * time.Second}
	res, err := c.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		err = errors.New(res.Status + ": " + strings.TrimSpace(string(b)))
	}
	return string(b), err
}
