package dnstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lookup returns the addresses that package net makes of a name, sorted.
func lookup(t *testing.T, s *Server, name string) ([]string, error) {
	t.Helper()
	addrs, err := s.Resolver().LookupHost(t.Context(), name)
	slices.Sort(addrs)
	return addrs, err
}

func TestServer(t *testing.T) {
	t.Parallel()
	s := New(t, Zone{
		"one.test":   {To("192.0.2.1")},
		"both.test":  {To("192.0.2.1", "2001:db8::1", "192.0.2.2", "::ffff:192.0.2.3")},
		"six.test":   {To("2001:db8::1")},
		"turns.test": {To("192.0.2.1", "2001:db8::1"), To("192.0.2.2", "2001:db8::2")},
		"chain.test": {{CNAMEs: []string{"a.test", "b.test"}, Addrs: []string{"192.0.2.1"}}},
		"none.test":  {To()},
	})
	for _, tt := range []struct {
		name string
		want []string // nil: no such host
	}{
		{"one.test", []string{"192.0.2.1"}},
		{"ONE.test.", []string{"192.0.2.1"}},
		{"both.test", []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"}},
		{"six.test", []string{"2001:db8::1"}},
		{"turns.test", []string{"192.0.2.1", "2001:db8::1"}},
		{"turns.test", []string{"192.0.2.2", "2001:db8::2"}},
		{"turns.test", []string{"192.0.2.2", "2001:db8::2"}},
		{"chain.test", []string{"192.0.2.1"}},
		{"none.test", nil},
		{"nowhere.test", nil},
	} {
		got, err := lookup(t, s, tt.name)
		if d := cmp.Diff(tt.want, got); d != "" || (err != nil) != (tt.want == nil) {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, d)
		}
		if dns, ok := errors.AsType[*net.DNSError](err); err != nil && (!ok || !dns.IsNotFound) {
			t.Errorf("%s: %v, want that there is no such host", tt.name, err)
		}
	}
	if n := s.Lookups("turns.test"); n != 3 {
		t.Errorf("turns.test was looked up %d times, want 3", n)
	}
	s.Set("turns.test", To("192.0.2.9"))
	if got, err := lookup(t, s, "turns.test"); !slices.Equal(got, []string{"192.0.2.9"}) || s.Lookups("turns.test") != 1 {
		t.Errorf("with another script: %v, %v, looked up %d times", got, err, s.Lookups("turns.test"))
	}
}

// No answer may be kept: a test that changes a name would meet the one before.
func TestTTL(t *testing.T) {
	t.Parallel()
	s := New(t, Zone{"chain.test": {{CNAMEs: []string{"a.test"}, Addrs: []string{"192.0.2.1"}}}})
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName("chain.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	query, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.answer(query)
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil || len(m.Answers) != 2 {
		t.Fatalf("answer %+v, %v, want an alias and an address", m, err)
	}
	for _, a := range m.Answers {
		if a.Header.TTL != 0 {
			t.Errorf("%v has a TTL of %d s", a.Header.Name, a.Header.TTL)
		}
	}
}

// overheard is a test whose end can be played and whose complaints are kept.
type overheard struct {
	testing.TB
	cleanups []func()

	mu     sync.Mutex
	errors []string
}

func (o *overheard) Helper()          {}
func (o *overheard) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }

func (o *overheard) Errorf(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errors = append(o.errors, fmt.Sprintf(format, args...))
}

func (o *overheard) end() {
	for _, f := range slices.Backward(o.cleanups) {
		f()
	}
}

func TestCanary(t *testing.T) {
	t.Parallel()
	addresses := []string{"127.0.0.1:0"}
	if IPv6(t) {
		addresses = append(addresses, "[::1]:0")
	}
	for _, address := range addresses {
		for _, visits := range []int{0, 1, 100} {
			o := &overheard{TB: t}
			host := netip.MustParseAddrPort(address).Addr().String()
			port := Canary(o, address)
			var from []string
			for range visits {
				c, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
				if err != nil {
					t.Fatal(err)
				}
				from = append(from, c.LocalAddr().String())
				_ = c.Close()
			}
			o.end()
			if len(o.errors) != visits {
				t.Errorf("%s: %d complaints about %d visits: %q", address, len(o.errors), visits, o.errors)
				continue
			}
			for i, e := range o.errors {
				if !strings.Contains(e, from[i]) || !strings.Contains(e, net.JoinHostPort(host, port)) {
					t.Errorf("%s: %q does not name %s", address, e, from[i])
				}
			}
		}
	}
}
