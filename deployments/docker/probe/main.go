// Command probe asks a URL and ends with 0 when the answer is 200, for the health check of an
// image that has neither a shell nor curl: probe http://127.0.0.1:8008/readyz.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// within bounds a probe. It is below what a health check waits, so that the reason is printed,
// and above what /readyz takes when Redis hangs.
const within = 2 * time.Second

func main() {
	if err := probe(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func probe(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: probe URL; it was given %d arguments", len(args))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], http.NoBody)
	if err != nil {
		return err
	}
	// A transport of its own: the proxy that the environment names is for what Trawl is not asked.
	res, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	// Docker keeps what a health check writes: there is the name of what is not ready.
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1024))
	return fmt.Errorf("%s: %s", res.Status, body)
}
