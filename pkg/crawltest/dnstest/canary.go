package dnstest

import (
	"context"
	"net"
	"testing"
)

// Canary listens on a loopback address that nobody may connect to, such as 127.0.0.1:0,
// and returns its port. When the test ends it fails for each connection that was made.
func Canary(tb testing.TB, address string) (port string) {
	tb.Helper()
	// The context of a test has ended when its cleanups run.
	ctx := context.WithoutCancel(tb.Context())
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	met := make(chan string, 64)
	go func() {
		defer close(met)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // before it is told: whoever did connect is to see that nothing is here
			met <- c.RemoteAddr().String()
		}
	}()
	tb.Cleanup(func() {
		// The backlog is first in, first out: whoever came before this one is met before it.
		last, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		if err != nil {
			tb.Errorf("the canary on %s cannot be asked: %v", ln.Addr(), err)
			_ = ln.Close()
		} else {
			defer func() { _ = last.Close() }()
		}
		for from := range met {
			if last != nil && from == last.LocalAddr().String() {
				break
			}
			tb.Errorf("the canary on %s was connected to from %s", ln.Addr(), from)
		}
		_ = ln.Close()
		for range met {
		}
	})
	_, port, _ = net.SplitHostPort(ln.Addr().String()) // an address of package net has one
	return port
}

// IPv6 reports whether this machine has the loopback address of IPv6, for canaries on it.
func IPv6(tb testing.TB) bool {
	tb.Helper()
	ln, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "[::1]:0")
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}
