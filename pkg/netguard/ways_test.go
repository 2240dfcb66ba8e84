package netguard

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest/dnstest"
)

// errPublic is in the place of a connection to a public address: no packet leaves.
var errPublic = errors.New("a public address would be dialled")

// outlook dials through a guard, but what the guard lets pass is noted and not connected
// to.
type outlook struct {
	*Guard
	mu     sync.Mutex
	passed []string
}

func (o *outlook) dial(ctx context.Context, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	d := o.dialer(host)
	judge := d.Control
	d.Control = func(network, address string, c syscall.RawConn) error {
		if err := judge(network, address, c); err != nil {
			return err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.passed = append(o.passed, address)
		return errPublic
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// hostOf returns what a transport dials for a URL, "host:port"; ok is false when the URL
// is none, so that nothing is dialled.
func hostOf(t *testing.T, raw string) (addr string, ok bool) {
	t.Helper()
	u, err := crawl.ParseURL(raw)
	if err != nil {
		return "", false
	}
	addr = u.Host()
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr += ":80"
	}
	return addr, true
}

// Whatever a private address is called, in a URL or by a name server, a guard of the zero
// policy refuses it (SEC-04). A canary listens where most of them lead.
func TestWaysIn(t *testing.T) {
	t.Parallel()
	port := dnstest.Canary(t, "127.0.0.1:0")
	if dnstest.IPv6(t) {
		dnstest.Canary(t, "[::1]:"+port)
	}
	kinds := map[string][]string{ // authorities of URLs; %s is the port
		"literal":          {"127.0.0.1", "127.8.8.8", "10.0.0.1", "172.31.0.1", "192.168.0.1", "100.64.0.1"},
		"octal":            {"0177.0.0.1", "0177.1", "017700000001", "00000177.00.00.01"},
		"hexadecimal":      {"0x7f.0.0.1", "0x7f.1", "0x7f000001", "0X7F.0x0.0x0.0x1"},
		"decimal":          {"2130706433", "127.1", "127.0.1"},
		"mixed":            {"0x7f.0.01", "127.0x0.1"},
		"percent-encoded":  {"%31%32%37.0.0.1", "127%2e0%2e0%2e1"},
		"full width":       {"１２７.０.０.１", "①②⑦.⓪.⓪.①"},
		"ideographic dots": {"127。0。0。1", "127．0．0．1", "127｡0｡0｡1"},
		"final dot":        {"127.0.0.1.", "0x7f.1.", "localhost."},
		"localhost": {
			"localhost", "LOCALHOST", "LocalHost.", "a.localhost", "ｌｏｃａｌｈｏｓｔ", "localhost.localdomain", "ip6-localhost",
		},
		"unspecified":         {"0.0.0.0", "0", "0x0", "00", "[::]", "[0:0:0:0:0:0:0:0]", "[::0.0.0.0]"},
		"this network":        {"0.1.2.3"},
		"broadcast":           {"255.255.255.255", "4294967295"},
		"multicast":           {"224.0.0.1", "239.255.255.250", "[ff02::1]", "[ff05::1:3]"},
		"link-local":          {"169.254.1.1", "[fe80::1]"},
		"zone":                {"[fe80::1%25lo]", "[fe80::1%lo]", "[::1%25lo]"},
		"loopback of IPv6":    {"[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]"},
		"unique local":        {"[fc00::1]", "[fd12:3456::1]"},
		"site-local":          {"[fec0::1]"},
		"IPv4-mapped":         {"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:FFFF:7F00:0001]", "[::ffff:0.0.0.0]"},
		"IPv4-compatible":     {"[::127.0.0.1]", "[::7f00:1]", "[::10.0.0.1]"},
		"IPv4-translated":     {"[::ffff:0:127.0.0.1]"},
		"NAT64":               {"[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]"},
		"NAT64, local":        {"[64:ff9b:1::127.0.0.1]", "[64:ff9b:1:7f00:0:100::]", "[64:ff9b:1:ffff::1]"},
		"6to4":                {"[2002:7f00:1::]", "[2002:7f00:1::1]", "[2002:a00:1::a00:1]"},
		"Teredo":              {"[2001:0:7f00:1::]", "[2001:0:4136:e378:8000:63bf:80ff:fffe]"},
		"ISATAP":              {"[2600::5efe:127.0.0.1]", "[2600::200:5efe:7f00:1]", "[fe80::5efe:10.0.0.1]"},
		"metadata of AWS":     {"169.254.169.254", "0xa9fea9fe", "2852039166", "[fd00:ec2::254]", "169.254.170.2"},
		"metadata of Azure":   {"168.63.129.16", "0xa83f8110"},
		"metadata of Alibaba": {"100.100.100.200"},
		"metadata of Oracle":  {"192.0.0.192"},
		"metadata of others":  {"169.254.42.42", "[fd00:42::42]", "[fd20:ce::254]", "[fe80::a9fe:a9fe]", "169.254.0.23"},
		"documentation":       {"192.0.2.1", "198.51.100.1", "203.0.113.1", "[2001:db8::1]", "[3fff::1]"},
		"benchmarking":        {"198.18.0.1", "198.19.255.255"},
		"discard-only":        {"[100::1]"},
	}
	o := &outlook{Guard: New(Policy{}, WithResolver(dnstest.New(t, dnstest.Zone{
		"localhost": {dnstest.To("127.0.0.1", "::1")}, "a.localhost": {dnstest.To("127.0.0.1")},
		"localhost.localdomain": {dnstest.To("127.0.0.1")}, "ip6-localhost": {dnstest.To("::1")},
	}).Resolver()))}
	for kind, hosts := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, host := range hosts {
				addr, ok := hostOf(t, "http://"+host+":"+port+"/")
				if !ok {
					// What is no URL is dialled by nobody; should somebody, it is refused.
					addr = strings.ReplaceAll(host, "%25", "%") + ":" + port
				}
				refused(t, host, o.dial(t.Context(), addr))
			}
		})
	}
	t.Cleanup(func() {
		if len(o.passed) > 0 {
			t.Errorf("let pass: %v", o.passed)
		}
	})
}

// refused fails the test when err is no refusal that says what to do.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	f, ok := errors.AsType[*crawl.Fault](err)
	if !ok || f.Code != crawl.CodePrivateAddress || f.Temporary || !strings.Contains(f.Message, Setting) {
		t.Errorf("%s: %v, want %s", what, err, crawl.CodePrivateAddress)
	}
}

// What a name server says is judged each time it says it, address by address (SEC-04).
func TestWaysInByName(t *testing.T) {
	t.Parallel()
	port := dnstest.Canary(t, "127.0.0.1:0")
	if dnstest.IPv6(t) {
		dnstest.Canary(t, "[::1]:"+port)
	}
	const public, public6 = "93.184.216.34", "2606:4700::1111"
	to := dnstest.To
	for name, tt := range map[string]struct {
		replies []dnstest.Reply // one dial each
		passed  []string        // addresses that may be dialled, over all dials
		last    bool            // whether the last dial met nothing but public addresses
	}{
		"A":                      {replies: []dnstest.Reply{to("127.0.0.1")}},
		"A of the local network": {replies: []dnstest.Reply{to("192.168.1.1")}},
		"A, metadata":            {replies: []dnstest.Reply{to("169.254.169.254")}},
		"A, unspecified":         {replies: []dnstest.Reply{to("0.0.0.0")}},
		"A, broadcast":           {replies: []dnstest.Reply{to("255.255.255.255")}},
		"AAAA":                   {replies: []dnstest.Reply{to("::1")}},
		"AAAA, unspecified":      {replies: []dnstest.Reply{to("::")}},
		"AAAA, metadata":         {replies: []dnstest.Reply{to("fd00:ec2::254")}},
		"AAAA, mapped":           {replies: []dnstest.Reply{to("::ffff:127.0.0.1")}},
		"AAAA, compatible":       {replies: []dnstest.Reply{to("::127.0.0.1")}},
		"AAAA, NAT64":            {replies: []dnstest.Reply{to("64:ff9b::7f00:1", "64:ff9b:1::7f00:1")}},
		"AAAA, 6to4":             {replies: []dnstest.Reply{to("2002:7f00:1::1")}},
		"AAAA, Teredo":           {replies: []dnstest.Reply{to("2001:0:4136:e378:8000:63bf:80ff:fffe")}},
		"AAAA, ISATAP":           {replies: []dnstest.Reply{to("2600::5efe:7f00:1")}},
		"AAAA, link-local":       {replies: []dnstest.Reply{to("fe80::1")}},
		"CNAME": {
			replies: []dnstest.Reply{{CNAMEs: []string{"a.test", "b.test", "localhost"}, Addrs: []string{"127.0.0.1", "::1"}}},
		},
		"public": {replies: []dnstest.Reply{to(public)}, passed: []string{public}, last: true},
		"public, twice": {
			replies: []dnstest.Reply{to(public), to(public)},
			passed:  []string{public, public}, last: true,
		},
		"public AAAA":   {replies: []dnstest.Reply{to(public6)}, passed: []string{public6}, last: true},
		"public mapped": {replies: []dnstest.Reply{to("::ffff:" + public)}, passed: []string{public}, last: true},
		"rebinding": {
			replies: []dnstest.Reply{to(public), to("127.0.0.1"), to("127.0.0.1")},
			passed:  []string{public},
		},
		"rebinding to AAAA": {replies: []dnstest.Reply{to(public), to("::1")}, passed: []string{public}},
		"rebinding by CNAME": {
			replies: []dnstest.Reply{to(public), {CNAMEs: []string{"localhost"}, Addrs: []string{"127.0.0.1"}}},
			passed:  []string{public},
		},
		"there and back": {
			replies: []dnstest.Reply{to("127.0.0.1"), to(public), to("10.0.0.1"), to(public)},
			passed:  []string{public, public}, last: true,
		},
		// Package net sorts them, and tries the next when one does not answer: all are judged.
		"both, public first": {replies: []dnstest.Reply{to(public, "127.0.0.1")}, passed: []string{public}},
		"both, private first": {
			replies: []dnstest.Reply{to("127.0.0.1", "10.0.0.1", public)}, passed: []string{public},
		},
		"both families": {replies: []dnstest.Reply{to(public6, "127.0.0.1", "::1")}, passed: []string{public6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(tt.passed) > 0 && strings.Contains(tt.passed[0], ":") && !dnstest.IPv6(t) {
				t.Skip("this machine has no IPv6")
			}
			dns := dnstest.New(t, dnstest.Zone{"site.test": tt.replies})
			o := &outlook{Guard: New(Policy{}, WithResolver(dns.Resolver()))}
			var err error
			for range tt.replies {
				err = o.dial(t.Context(), "site.test:"+port)
			}
			want := make([]string, 0, len(tt.passed))
			for _, a := range tt.passed {
				want = append(want, net.JoinHostPort(a, port))
			}
			if d := cmp.Diff(want, append([]string{}, o.passed...)); d != "" {
				t.Errorf("let pass (-want +got):\n%s", d)
			}
			switch {
			case tt.last && !errors.Is(err, errPublic):
				t.Errorf("the last ended as %v, want it to meet a public address", err)
			case len(tt.passed) == 0:
				refused(t, name, err)
				noInside(t, err, tt.replies)
			}
			if n := dns.Lookups("site.test"); n != len(tt.replies) {
				t.Errorf("%d look-ups, want one a dial: an answer was kept or asked for twice", n)
			}
		})
	}
}

// noInside fails the test when a refusal tells what a name leads to: that is how the
// networks around the crawler look from inside.
func noInside(t *testing.T, err error, replies []dnstest.Reply) {
	t.Helper()
	f, ok := errors.AsType[*crawl.Fault](err)
	if !ok {
		return
	}
	for _, r := range replies {
		for _, secret := range slices.Concat(r.Addrs, r.CNAMEs) {
			if strings.Contains(f.Message, secret) {
				t.Errorf("the message %q tells of %s", f.Message, secret)
			}
		}
	}
}

// TRAWL_PRIVATE_HOSTS opens what it names and nothing beside it.
func TestPrivateHostsOpensNothingElse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		setting string
		opened  []string // host of the URL → the address that it leads to, "host>address:port" or "address:port"
		shut    []string
	}{
		{
			"10.0.0.7:8080",
			[]string{"10.0.0.7:8080", "any.test>10.0.0.7:8080", "[::ffff:10.0.0.7]:8080"},
			[]string{
				"10.0.0.7:8081", "10.0.0.7:8079", "10.0.0.7:80", "10.0.0.6:8080", "10.0.0.8:8080", "[::10.0.0.7]:8080",
				"[64:ff9b::10.0.0.7]:8080", "[64:ff9b:1::10.0.0.7]:8080", "[2002:a00:7::]:8080", "[2600::5efe:10.0.0.7]:8080",
			},
		},
		{
			"10.0.0.7",
			[]string{"10.0.0.7:1", "10.0.0.7:65535"},
			[]string{"10.0.0.6:1", "10.0.0.8:1", "[64:ff9b::10.0.0.7]:1", "[::a00:7]:1", "127.0.0.1:1"},
		},
		{
			"[fd00::7]:8080",
			[]string{"[fd00::7]:8080", "any.test>[fd00::7]:8080"},
			[]string{"[fd00::7]:8081", "[fd00::6]:8080", "[fd00::8]:8080", "0.0.0.7:8080"},
		},
		{
			"10.1.0.0/16",
			[]string{"10.1.0.0:80", "10.1.255.255:80"},
			[]string{"10.0.255.255:80", "10.2.0.0:80", "[fd00::a01:0]:80"},
		},
		{
			"10.0.0.4/30",
			[]string{"10.0.0.4:80", "10.0.0.7:80"},
			[]string{"10.0.0.3:80", "10.0.0.8:80"},
		},
		{"10.0.0.4/31", []string{"10.0.0.4:80", "10.0.0.5:80"}, []string{"10.0.0.3:80", "10.0.0.6:80"}},
		{"10.0.0.4/32", []string{"10.0.0.4:80"}, []string{"10.0.0.3:80", "10.0.0.5:80"}},
		{
			"fd00:1::/32",
			[]string{"[fd00:1::]:80", "[fd00:1:ffff:ffff:ffff:ffff:ffff:ffff]:80"},
			[]string{"[fd00:0:ffff:ffff:ffff:ffff:ffff:ffff]:80", "[fd00:2::]:80"},
		},
		{
			"wiki.internal:8080",
			[]string{"wiki.internal>10.0.0.7:8080", "WIKI.internal.>[fd00::7]:8080"},
			[]string{
				"10.0.0.7:8080", "wiki.internal>10.0.0.7:8081", "a.wiki.internal>10.0.0.7:8080", "wiki.internal.test>10.0.0.7:8080",
				"iki.internal>10.0.0.7:8080", "internal>10.0.0.7:8080",
			},
		},
		{
			"localhost:8080",
			[]string{"localhost>127.0.0.1:8080", "localhost>[::1]:8080"},
			[]string{"127.0.0.1:8080", "[::1]:8080", "evil.test>127.0.0.1:8080", "localhost>127.0.0.1:6379"},
		},
		{"", nil, []string{"127.0.0.1:80", "[::1]:80"}},
	} {
		policy, err := Parse(tt.setting)
		if err != nil {
			t.Fatal(err)
		}
		g := New(policy)
		check := func(way string) error {
			host, to, named := strings.Cut(way, ">")
			if !named {
				to = way
			}
			address, _, err := net.SplitHostPort(to)
			if err != nil {
				t.Fatal(err)
			}
			if !named {
				host = address
			}
			return g.check(host, networkOf(address), to)
		}
		for _, way := range tt.opened {
			if err := check(way); err != nil {
				t.Errorf("with %q %s is refused: %v", tt.setting, way, err)
			}
		}
		for _, way := range tt.shut {
			refused(t, "with "+tt.setting+" "+way, check(way))
		}
		if err := check("93.184.216.34:80"); err != nil {
			t.Errorf("with %q what is public is refused: %v", tt.setting, err)
		}
	}
}

// An entry for a name opens whatever the name leads to, also when that changes; the same
// addresses stay shut by any other name, by themselves and on the next port.
func TestAllowedNameRebinds(t *testing.T) {
	t.Parallel()
	open := greeter(t, "127.0.0.1:0")
	if second := greeter(t, "127.0.0.2:"+open); second != open {
		t.Fatalf("port %s, want %s", second, open)
	}
	shut := dnstest.Canary(t, "127.0.0.1:0")
	policy, err := Parse("wiki.internal:" + open)
	if err != nil {
		t.Fatal(err)
	}
	moving := []dnstest.Reply{dnstest.To("127.0.0.1"), dnstest.To("127.0.0.2")}
	g := New(policy, WithResolver(dnstest.New(t, dnstest.Zone{"wiki.internal": moving, "evil.test": moving}).Resolver()))
	for range moving {
		if got, err := greeted(t, g, "wiki.internal:"+open); got != "hello" {
			t.Errorf("the allowed name: %q, %v", got, err)
		}
		for _, addr := range []string{
			"evil.test:" + open, "127.0.0.1:" + open, "127.0.0.2:" + open, "wiki.internal:" + shut, "127.0.0.1:" + shut,
		} {
			_, err := greeted(t, g, addr)
			refused(t, addr, err)
		}
	}
}
