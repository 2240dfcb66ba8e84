// Package netguard decides whether an address may be dialled, and says why not.
//
// A crawler fetches what strangers name. The guard keeps those names away from
// the machine it runs on and the networks around it: loopback, private and
// link-local ranges, cloud metadata services and every other range that is not
// public. It judges the address itself, in the last step before the connection
// is made, so that neither a name that resolves to a private address, nor one
// that resolves differently the second time, nor a redirect gets past it.
//
// Whatever fetches or sends for a caller, who may be a stranger, must dial through a
// [Guard]: pages, robots.txt files and sitemaps do, and anything that calls an address
// which somebody submitted, such as a webhook, has to. It must not go through a proxy,
// since the guard would judge the address of the proxy only.
//
// What may be dialled although private is a [Policy], read from
// TRAWL_PRIVATE_HOSTS.
package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"example.com/trawl/pkg/crawl"
)

// dialTimeout bounds one connection attempt over all addresses of a name. A
// fetch has its own, longer limit; this one leaves it time to say what failed.
const dialTimeout = 10 * time.Second

// Public space that is private in fact. 168.63.129.16 is the platform service
// of Azure's virtual machines (its DHCP, DNS and guest agent), reachable only from inside.
var notPublic = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32")}

// Guard dials public addresses and those that its [Policy] allows. It is safe
// for concurrent use.
//
// A pooled connection is handed out again without a check. Therefore every
// http.Transport must keep to one Guard for its whole life.
type Guard struct {
	policy   Policy
	resolver *net.Resolver
	public   *ssrf.Guardian
	denied   []netip.Prefix
}

// Option changes a [Guard] that is being made; nil changes nothing.
type Option func(*Guard)

// WithResolver makes the guard look names up with r in place of
// net.DefaultResolver.
func WithResolver(r *net.Resolver) Option { return func(g *Guard) { g.resolver = r } }

// WithDenied takes further prefixes for private: public ranges of one's own, or
// the prefix of one's NAT64 gateway.
func WithDenied(prefixes ...netip.Prefix) Option {
	return func(g *Guard) { g.denied = append(g.denied, prefixes...) }
}

// New makes a Guard that lets public addresses pass, on any port, and the
// private ones that p allows.
func New(p Policy, opts ...Option) *Guard {
	g := &Guard{policy: p, denied: append([]netip.Prefix(nil), notPublic...)}
	for _, o := range opts {
		if o != nil {
			o(g)
		}
	}
	var v4, v6 []netip.Prefix
	for _, pre := range g.denied {
		if pre.Addr().Is4() {
			v4 = append(v4, pre)
		} else {
			v6 = append(v6, pre)
		}
	}
	g.public = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(v4...), ssrf.WithDeniedV6Prefixes(v6...))
	return g
}

// DialContext connects to addr, a "host:port" whose host is a name or an
// address; it has the form that http.Transport.DialContext asks for. Each
// address that the host resolves to is judged after DNS and before the first
// packet; those that are refused are passed over. The error is a *crawl.Fault
// of code [crawl.CodePrivateAddress] when the guard refused, and what package
// net returned otherwise.
func (g *Guard) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, refusal("", addr, err)
	}
	conn, err := g.dialer(host).DialContext(ctx, network, addr)
	if err != nil {
		if f, ok := errors.AsType[*crawl.Fault](err); ok {
			return nil, f
		}
		return nil, err
	}
	return conn, nil
}

// dialer returns a dialer for URLs of the given host.
func (g *Guard) dialer(host string) *net.Dialer {
	return &net.Dialer{
		Timeout:  dialTimeout,
		Resolver: g.resolver,
		// Control, not ControlContext: with both set, only the latter is called.
		Control: func(network, address string, _ syscall.RawConn) error {
			return g.check(host, network, address)
		},
	}
}

// check judges one address for a URL of the given host. What it cannot read, it
// refuses.
func (g *Guard) check(host, network, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return refusal(host, address, err)
	}
	if network != "tcp4" && network != "tcp6" {
		return refusal(host, address, fmt.Errorf("network %q", network))
	}
	if g.policy.allows(host, to) {
		return nil
	}
	// As the setting spells it: without a zone.
	shown := netip.AddrPortFrom(to.Addr().WithZone("").Unmap(), to.Port()).String()
	if err := g.public.SafeAddrPort(to); err != nil {
		return refusal(host, shown, err)
	}
	if tunnelsIPv4(to.Addr()) {
		return refusal(host, shown, errors.New("ISATAP interface identifier"))
	}
	return nil
}

// open is a guard that allows nothing private.
var open = New(Policy{})

// Public reports whether a guard of the zero [Policy] would let an address be dialled: for
// who wants to know before, such as a command that opens what a person names.
func Public(a netip.Addr) bool {
	network := "tcp6"
	if a.Unmap().Is4() {
		network = "tcp4"
	}
	return open.check("", network, netip.AddrPortFrom(a, 443).String()) == nil
}

// tunnelsIPv4 reports whether a is an ISATAP address (RFC 5214 section 6.1):
// any /64 followed by 0000:5efe or 0200:5efe and an IPv4 address, to which a
// router with that interface would unwrap the packet.
func tunnelsIPv4(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// refusal is the fault for an address that is not dialled because of cause. Who asked
// for a name is told the name and not what it resolves to, since that is how the
// networks around the crawler look from inside; the address is in the cause, for logs.
func refusal(host, address string, cause error) error {
	shown, what := address, "The address %s is not public and was not contacted."
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		what = "The name %s leads to an address that is not public and was not contacted."
		shown = host
		if _, port, err := net.SplitHostPort(address); err == nil {
			shown = net.JoinHostPort(canonicalHost(host), port) // as the setting takes it
		}
		cause = fmt.Errorf("%s for %s: %w", address, host, cause)
	}
	shown = printable(clip(shown, 100))
	return &crawl.Fault{
		Code: crawl.CodePrivateAddress,
		Message: fmt.Sprintf(what, shown) +
			" If it is meant to be reached, the operator can add " + shown + " to " + Setting + ".",
		Err: cause,
	}
}

// printable drops what an address never holds: it may come from a URL.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x21 || r > 0x7e && r != '…' {
			return -1
		}
		return r
	}, s)
}
