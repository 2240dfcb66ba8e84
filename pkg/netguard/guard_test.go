package netguard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"code.dny.dev/ssrf"
	"go.uber.org/goleak"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest/dnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCheck walks the ranges that a guard must know, SEC-04 among them. Nothing
// is dialled.
func TestCheck(t *testing.T) {
	t.Parallel()
	denied := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.8.8.8",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
		"192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
		"240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
		"64:ff9b:1::1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "fc00::1", "fd00:ec2::254",
		"fe80::1", "fe80::1%lo", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1",
		"2600::5efe:10.0.0.1", "2600::200:5efe:10.0.0.1", "2600:1::1%eth0",
		"9.9.9.9", "2606:4700::1111", // by WithDenied
	}
	public := []string{
		"8.8.8.8", "93.184.216.34", "168.63.129.15", "172.32.0.1", "100.128.0.1", "192.0.1.1",
		"2600::1", "2001:4860:4860::8888", "2600::5eff:a00:1",
	}
	g := New(Policy{}, WithDenied(netip.MustParsePrefix("9.9.9.0/24"), netip.MustParsePrefix("2606:4700::/32")))
	for _, a := range denied {
		for _, port := range []string{"80", "6379"} {
			err := g.check(a, networkOf(a), net.JoinHostPort(a, port))
			f, ok := errors.AsType[*crawl.Fault](err)
			if !ok || f.Code != crawl.CodePrivateAddress {
				t.Errorf("check(%s, port %s) = %v, want %s", a, port, err, crawl.CodePrivateAddress)
				continue
			}
			shown := netip.MustParseAddr(a).WithZone("").Unmap().String()
			if !strings.Contains(f.Message, shown) || !strings.Contains(f.Message, Setting) {
				t.Errorf("message %q names not both %s and %s", f.Message, shown, Setting)
			}
			// Of a name, who asked learns no more than the name; the log has the address.
			named, _ := errors.AsType[*crawl.Fault](g.check("Site.Test.", networkOf(a), net.JoinHostPort(a, port)))
			if named == nil || strings.Contains(named.Message, shown) || !strings.Contains(named.Error(), shown) ||
				!strings.Contains(named.Message, "add site.test:"+port+" to "+Setting) {
				t.Errorf("%s behind a name: %v", a, named)
			}
			if f.Temporary {
				t.Errorf("refusal of %s is temporary", a)
			}
		}
	}
	for _, a := range public {
		for _, port := range []string{"80", "443", "8080"} {
			if err := g.check("site.test", networkOf(a), net.JoinHostPort(a, port)); err != nil {
				t.Errorf("check(%s, port %s) = %v, want it to pass", a, port, err)
			}
		}
	}
}

func networkOf(a string) string {
	if strings.Contains(a, ":") {
		return "tcp6"
	}
	return "tcp4"
}

func TestCheckFailsClosed(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, c := range [][2]string{
		{"tcp4", "8.8.8.8"},
		{"tcp4", ""},
		{"tcp4", "8.8.8.8:x"},
		{"tcp4", "example.org:80"},
		{"udp4", "8.8.8.8:53"},
		{"unix", "/run/docker.sock"},
	} {
		if err := g.check("site.test", c[0], c[1]); crawl.CodeOf(err) != crawl.CodePrivateAddress {
			t.Errorf("check(%q, %q) = %v, want a refusal", c[0], c[1], err)
		}
	}
	if err := g.check("site.test", "tcp4", "127.0.0.1:80"); !errors.Is(err, ssrf.ErrProhibitedIP) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// greeter accepts on a loopback address and says hello to everyone.
func greeter(t *testing.T, address string) (port string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return portOf(ln)
}

func portOf(ln net.Listener) string {
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// greeted dials addr through g and reports the greeting.
func greeted(t *testing.T, g *Guard, addr string) (string, error) {
	t.Helper()
	conn, err := g.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	b, err := io.ReadAll(conn)
	return string(b), err
}

// TestDial plays SEC-04 on loopback: 127.0.0.2, which the policy allows, has the
// part of the public address; 127.0.0.1 on the same port is the canary.
func TestDial(t *testing.T) {
	t.Parallel()
	public := greeter(t, "127.0.0.2:0")
	private := dnstest.Canary(t, "127.0.0.1:"+public)
	policy, err := Parse("127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	g := New(policy, WithResolver(dnstest.New(t, dnstest.Zone{
		"site.test":          {dnstest.To("127.0.0.2")},
		"rebind.test":        {dnstest.To("127.0.0.2"), dnstest.To("127.0.0.1")},
		"multi.test":         {dnstest.To("127.0.0.1", "127.0.0.2")},
		"127-0-0-1.nip.test": {dnstest.To("127.0.0.1")},
		"chain.test":         {{CNAMEs: []string{"localhost.test"}, Addrs: []string{"127.0.0.1"}}},
		"meta.test":          {dnstest.To("169.254.169.254")},
	}).Resolver()))

	tests := []struct {
		name, host string
		want       crawl.Code // empty: greeted
	}{
		{"public", "site.test", ""},
		{"SEC-04 two answers, the public one is dialled", "multi.test", ""},
		{"SEC-04 name that spells its address", "127-0-0-1.nip.test", crawl.CodePrivateAddress},
		{"SEC-04 CNAME", "chain.test", crawl.CodePrivateAddress},
		{"cloud metadata", "meta.test", crawl.CodePrivateAddress},
		{"literal", "127.0.0.1", crawl.CodePrivateAddress},
		{"mapped literal", "[::ffff:127.0.0.1]", crawl.CodePrivateAddress},
		{"mapped literal in hex", "[::ffff:7f00:1]", crawl.CodePrivateAddress},
		{"IPv6 loopback", "[::1]", crawl.CodePrivateAddress},
		{"zone", "[fe80::1%lo]", crawl.CodePrivateAddress},
		{"unspecified", "0.0.0.0", crawl.CodePrivateAddress},
		{"unspecified IPv6", "[::]", crawl.CodePrivateAddress},
		{"empty host", "", crawl.CodePrivateAddress},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := greeted(t, g, tt.host+":"+private)
			if tt.want == "" && (err != nil || got != "hello") {
				t.Errorf("got %q, %v, want a greeting", got, err)
			}
			//nolint:errorlint // a wrapped fault is what this must find
			if _, direct := err.(*crawl.Fault); tt.want != "" && (crawl.CodeOf(err) != tt.want || !direct) {
				t.Errorf("got %q, %v, want the fault %s itself", got, err, tt.want)
			}
		})
	}

	t.Run("SEC-04 rebinding", func(t *testing.T) {
		t.Parallel()
		if got, err := greeted(t, g, "rebind.test:"+public); got != "hello" {
			t.Fatalf("first: %q, %v, want a greeting", got, err)
		}
		for range 3 {
			if got, err := greeted(t, g, "rebind.test:"+public); crawl.CodeOf(err) != crawl.CodePrivateAddress {
				t.Errorf("after rebinding: %q, %v, want %s", got, err, crawl.CodePrivateAddress)
			}
		}
	})
	t.Run("no such name is no refusal", func(t *testing.T) {
		t.Parallel()
		_, err := greeted(t, g, "nowhere.test:80")
		if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound {
			t.Errorf("got %v, want a DNS error", err)
		}
	})
	t.Run("an ended context is no refusal", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.DialContext(ctx, "tcp", "site.test:"+public); crawl.CodeOf(err) == crawl.CodePrivateAddress {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no port", func(t *testing.T) {
		t.Parallel()
		if _, err := g.DialContext(t.Context(), "tcp", "site.test"); crawl.CodeOf(err) != crawl.CodePrivateAddress {
			t.Errorf("got %v, want a refusal", err)
		}
	})
}

// TestDialAllowedName: name:port is matched on the host of the URL, so another
// name of the same address stays out.
func TestDialAllowedName(t *testing.T) {
	t.Parallel()
	port := greeter(t, "127.0.0.1:0")
	policy, err := Parse("wiki.internal:" + port)
	if err != nil {
		t.Fatal(err)
	}
	g := New(policy, WithResolver(dnstest.New(t, dnstest.Zone{
		"wiki.internal": {dnstest.To("127.0.0.1")}, "evil.test": {dnstest.To("127.0.0.1")},
	}).Resolver()))
	if got, err := greeted(t, g, "WIKI.internal:"+port); got != "hello" {
		t.Errorf("allowed name: %q, %v", got, err)
	}
	if _, err := greeted(t, g, "evil.test:"+port); crawl.CodeOf(err) != crawl.CodePrivateAddress {
		t.Errorf("other name: %v, want a refusal", err)
	}
}

func TestPublic(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"93.184.216.34": true, "2606:4700::1": true, "::ffff:93.184.216.34": false,
		"127.0.0.1": false, "10.0.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.100.1.1": false,
		"198.18.0.1": false, "0.0.0.0": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fd00::1": false,
		"64:ff9b::5db8:d822": false, "168.63.129.16": false,
	} {
		if got := Public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}
