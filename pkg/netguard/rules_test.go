package netguard

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"example.com/trawl/pkg/crawl"
)

// notGlobal is what the IANA registries of special-purpose addresses call not globally
// reachable, and the transition mechanisms, whose addresses lead to an IPv4 address that
// the guard would have to judge, too. It is written down here a second time, so that the
// guard is not measured by its own table.
var notGlobal = prefixes(
	"0.0.0.0/8",       // RFC 791 section 3.2: this network
	"10.0.0.0/8",      // RFC 1918
	"100.64.0.0/10",   // RFC 6598: shared address space
	"127.0.0.0/8",     // RFC 1122 section 3.2.1.3
	"168.63.129.16",   // the platform of Azure's machines
	"169.254.0.0/16",  // RFC 3927: link-local
	"172.16.0.0/12",   // RFC 1918
	"192.0.0.0/24",    // RFC 6890: protocol assignments
	"192.0.2.0/24",    // RFC 5737: documentation
	"192.88.99.0/24",  // RFC 7526: 6to4 relays
	"192.168.0.0/16",  // RFC 1918
	"198.18.0.0/15",   // RFC 2544: benchmarking
	"198.51.100.0/24", // RFC 5737
	"203.0.113.0/24",  // RFC 5737
	"224.0.0.0/4",     // RFC 1112: multicast
	"240.0.0.0/4",     // RFC 1112: reserved, broadcast
	"::/8",            // unspecified, loopback, and the IPv4-compatible, -mapped and -translated
	"64:ff9b::/96",    // RFC 6052: NAT64
	"64:ff9b:1::/48",  // RFC 8215: local NAT64
	"100::/64",        // RFC 6666: discard-only
	"100:0:0:1::/64",  // RFC 9780: dummy
	"2001::/32",       // RFC 4380: Teredo
	"2001:2::/48",     // RFC 5180: benchmarking
	"2001:10::/28",    // RFC 4843: ORCHID
	"2001:db8::/32",   // RFC 3849: documentation
	"2002::/16",       // RFC 3056: 6to4
	"3fff::/20",       // RFC 9637: documentation
	"5f00::/16",       // RFC 9602: segment routing
	"fc00::/7",        // RFC 4193: unique local
	"fe80::/10",       // RFC 4291: link-local
	"fec0::/10",       // RFC 3879: site-local
	"ff00::/8",        // RFC 4291: multicast
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// isPrivate is the rule table as a function.
func isPrivate(a netip.Addr) bool {
	a = a.WithZone("")
	if a.IsUnspecified() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.Is4In6() {
		return true
	}
	for _, p := range notGlobal {
		if p.Contains(a) {
			return true
		}
	}
	return a.Is6() && binary.BigEndian.Uint32(a.AsSlice()[8:])&^0x0200_0000 == 0x0000_5efe // RFC 5214: ISATAP
}

// mustRefuse fails the test when a private address gets past the zero policy, whatever it is
// asked for and on whatever port.
func mustRefuse(t *testing.T, a netip.Addr) {
	t.Helper()
	if Public(a) {
		t.Errorf("Public(%v) of a private address", a)
	}
	for _, port := range []uint16{1, 80, 443, 65535} {
		for _, host := range []string{a.String(), "site.test", ""} {
			err := open.check(host, networkOf(a.String()), netip.AddrPortFrom(a, port).String())
			if f, ok := errors.AsType[*crawl.Fault](err); !ok || f.Code != crawl.CodePrivateAddress {
				t.Errorf("%v, port %d, for %q: %v, want a refusal", a, port, host, err)
			}
		}
	}
}

// The first and the last address of each range that is not public are refused.
func TestEdges(t *testing.T) {
	t.Parallel()
	for _, p := range notGlobal {
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < p.Addr().BitLen(); i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{p.Addr(), end} {
			if !isPrivate(a) {
				t.Errorf("%v is not in %v", a, p)
			}
			mustRefuse(t, a)
		}
	}
}

// embeddings are the IPv6 addresses that stand for an IPv4 address: wherever it leads,
// another party unwraps them. prefix is the first half of an ISATAP address.
func embeddings(v4 [4]byte, prefix uint64) []netip.Addr {
	a, b, c, d := v4[0], v4[1], v4[2], v4[3]
	at := func(offset int, head ...byte) netip.Addr {
		var x [16]byte
		copy(x[:], head)
		copy(x[offset:], v4[:])
		return netip.AddrFrom16(x)
	}
	return []netip.Addr{
		at(12), // IPv4-compatible
		at(12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff), // IPv4-mapped
		at(12, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff),       // IPv4-translated
		at(12, 0, 0x64, 0xff, 0x9b),                      // NAT64
		at(12, 0, 0x64, 0xff, 0x9b, 0, 1),                // local NAT64, /96
		at(2, 0x20, 0x02),                                // 6to4
		at(4, 0x20, 0x01),                                // Teredo, its server
		// Local NAT64 with a prefix of 48 bits, whose ninth byte is skipped.
		netip.AddrFrom16([16]byte{1: 0x64, 2: 0xff, 3: 0x9b, 5: 1, 6: a, 7: b, 9: c, 10: d}),
		// The client of Teredo, whose bits are turned.
		netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 4: 65, 12: ^a, 13: ^b, 14: ^c, 15: ^d}),
		// ISATAP, with an IPv4 address that is private and one that is public.
		at(12, append(binary.BigEndian.AppendUint64(nil, prefix), 0, 0, 0x5e, 0xfe)...),
		at(12, append(binary.BigEndian.AppendUint64(nil, prefix), 2, 0, 0x5e, 0xfe)...),
	}
}

// Whatever is said to be an address, as an address or as the host of a URL: when the rule
// table calls it not public, the zero policy does not let it through.
func FuzzGuard(f *testing.F) {
	for _, text := range []string{
		"127.0.0.1", "0x7f.1", "0177.1", "2130706433", "127。0。0。1", "0", "[::]", "::1", "fe80::1%lo", "[::ffff:127.0.0.1]",
		"169.254.169.254", "168.63.129.16", "8.8.8.8", "[2600::5efe:a00:1]", "[64:ff9b::7f00:1]", "1.1.1.1%2", "٠.0.0.1",
	} {
		f.Add(text, uint64(0x2600_0000_0000_0000), uint64(0x5efe_0a00_0001), uint32(0x7f00_0001))
	}
	f.Add("", uint64(0x2001_0db8_0000_0000), uint64(1), uint32(0xa83f_8110))
	f.Add("", uint64(0x0064_ff9b_0000_0000), uint64(0x0a00_0001), uint32(0x0808_0808))
	f.Fuzz(func(t *testing.T, text string, high, low uint64, v4 uint32) {
		var four [4]byte
		binary.BigEndian.PutUint32(four[:], v4)
		var sixteen [16]byte
		binary.BigEndian.PutUint64(sixteen[:8], high)
		binary.BigEndian.PutUint64(sixteen[8:], low)
		addrs := append(embeddings(four, high), netip.AddrFrom4(four), netip.AddrFrom16(sixteen))
		if a, err := netip.ParseAddr(text); err == nil {
			addrs = append(addrs, a)
		}
		if u, err := crawl.ParseURL("http://" + text + "/"); err == nil {
			if a, err := netip.ParseAddr(u.Hostname()); err == nil {
				addrs = append(addrs, a)
			}
		}
		for _, a := range addrs {
			if isPrivate(a) {
				mustRefuse(t, a)
			}
			if a.Is6() && isPrivate(a) {
				mustRefuse(t, a.WithZone("eth0"))
			}
		}
		for _, a := range embeddings(four, high) {
			if !isPrivate(a) {
				t.Errorf("the rule table lets %v pass, which stands for %v", a, netip.AddrFrom4(four))
			}
		}
		// What is no address at all is refused as well.
		if _, err := netip.ParseAddrPort(text); err != nil && open.check(text, "tcp4", text) == nil {
			t.Errorf("%q was let through", text)
		}
		if _, err := netip.ParseAddr(text); err != nil && open.check(text, "tcp4", net.JoinHostPort(text, "80")) == nil {
			t.Errorf("%q with a port was let through", text)
		}
	})
}
