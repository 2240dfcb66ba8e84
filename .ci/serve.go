//go:build ignore

// Serves the directory that is named on a free port of 127.0.0.1, prints the URL, and
// ends with its standard input: the site that .ci/newcomer crawls, for CI reaches no
// other.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("http://%s\n", l.Addr())
	go func() { _ = http.Serve(l, http.FileServer(http.Dir(os.Args[1]))) }() // ends with the process
	_, _ = io.Copy(io.Discard, os.Stdin)
}
