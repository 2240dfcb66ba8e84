// Package dnstest is what tests of the way to a server stand on: a name server that
// answers by a script, and canaries, which are listeners that nobody may connect to.
// Both are on loopback; nothing is sent anywhere else.
package dnstest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// maxMessage bounds a query and an answer, in bytes: what package net offers by EDNS
// (RFC 6891). More would be cut, and asked for again by TCP.
const maxMessage = 1232

// Reply is what the name server answers for one name. The zero Reply is a name without
// addresses.
type Reply struct {
	// CNAMEs lead from the name to the one that has the addresses, in order, as
	// canonical names do (RFC 1034 section 3.6.2).
	CNAMEs []string
	// Addrs are the addresses in the order of the answer. Those of IPv4 answer a
	// question for A, all others, IPv4-mapped ones included, one for AAAA.
	Addrs []string
}

// To is a Reply of these addresses.
func To(addrs ...string) Reply { return Reply{Addrs: addrs} }

// Zone has the script of each name: the n-th look-up gets the n-th reply, and the last
// goes on. Names are written in lower case and without a final dot; those that are not in
// it do not exist (NXDOMAIN).
type Zone map[string][]Reply

// Server is a name server on UDP. All its answers have a TTL of zero: who asks is to ask
// again. It is safe for concurrent use.
type Server struct {
	tb   testing.TB
	addr string

	mu    sync.Mutex
	zone  Zone
	asked map[question]int
}

// question is counted by its type: a look-up asks for A and for AAAA at the same time,
// and both are to see the same reply.
type question struct {
	name string
	kind dnsmessage.Type
}

// New starts a server that ends with the test.
func New(tb testing.TB, zone Zone) *Server {
	tb.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(tb.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, addr: conn.LocalAddr().String(), zone: Zone{}, asked: map[question]int{}}
	for name, replies := range zone {
		s.Set(name, replies...)
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.serve(conn) })
	tb.Cleanup(func() { _ = conn.Close(); wg.Wait() })
	return s
}

// Set gives a name another script, which begins with the next look-up.
func (s *Server) Set(name string, replies ...Reply) {
	s.tb.Helper()
	for _, r := range replies {
		for _, a := range r.Addrs {
			if _, err := netip.ParseAddr(a); err != nil {
				s.tb.Fatalf("name %s: %v", name, err)
			}
		}
		for _, c := range r.CNAMEs {
			if _, err := dnsmessage.NewName(c + "."); err != nil {
				s.tb.Fatalf("name %s: alias %s: %v", name, c, err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[name] = replies
	delete(s.asked, question{name, dnsmessage.TypeA})
	delete(s.asked, question{name, dnsmessage.TypeAAAA})
}

// Lookups returns how often a name was looked up since its script was set.
func (s *Server) Lookups(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.asked[question{name, dnsmessage.TypeA}], s.asked[question{name, dnsmessage.TypeAAAA}])
}

// Resolver returns a resolver that asks this server and no other. Names that the hosts
// file of the machine has, which localhost mostly is, are answered from there.
func (s *Server) Resolver() *net.Resolver {
	return &net.Resolver{
		PreferGo: true, // the other one is the C library's, which takes no Dial
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", s.addr)
		},
	}
}

// serve answers until the connection is closed.
func (s *Server) serve(conn net.PacketConn) {
	buf := make([]byte, maxMessage)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		answer, err := s.answer(buf[:n])
		switch {
		case err != nil:
			s.tb.Errorf("name server: %v", err)
		case len(answer) > maxMessage:
			s.tb.Errorf("name server: an answer of %d bytes does not fit into a message", len(answer))
		default:
			_, _ = conn.WriteTo(answer, from) // who asked may be gone
		}
	}
}

// answer builds the answer to one query.
func (s *Server) answer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	reply, ok := s.next(question{strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")), q.Type})
	out := dnsmessage.Header{ID: head.ID, Response: true, Authoritative: true, RecursionAvailable: true}
	if !ok {
		out.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, out)
	if err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers(), reply.write(&b, q)); err != nil {
		return nil, err
	}
	return b.Finish()
}

// next returns the reply whose turn it is; ok is false for a name that does not exist.
func (s *Server) next(q question) (r Reply, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	replies, ok := s.zone[q.name]
	n := s.asked[q]
	s.asked[q]++
	if len(replies) == 0 {
		return Reply{}, ok
	}
	return replies[min(n, len(replies)-1)], true
}

// write adds the records that answer q.
func (r Reply) write(b *dnsmessage.Builder, q dnsmessage.Question) error {
	owner := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET} // TTL 0
	for _, alias := range r.CNAMEs {
		to, err := dnsmessage.NewName(alias + ".")
		if err == nil {
			err = b.CNAMEResource(owner, dnsmessage.CNAMEResource{CNAME: to})
		}
		if err != nil {
			return err
		}
		owner.Name = to
	}
	for _, text := range r.Addrs {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case a.Is4() && q.Type == dnsmessage.TypeA:
			err = b.AResource(owner, dnsmessage.AResource{A: a.As4()})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			err = b.AAAAResource(owner, dnsmessage.AAAAResource{AAAA: a.As16()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
