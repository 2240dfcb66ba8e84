package netguard

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"example.com/trawl/pkg/crawl"
)

// Setting is the name of the setting that [Parse] reads; refusals name it, so
// that whoever meets one knows what to change.
const Setting = "TRAWL_PRIVATE_HOSTS"

// DeniedSetting is the name of the setting that [ParseDenied] reads.
const DeniedSetting = "TRAWL_DENIED_NETWORKS"

// ParseDenied reads the value of TRAWL_DENIED_NETWORKS, a comma-separated list of CIDRs (an
// address stands for itself), as [WithDenied] takes it. All faults are reported at once, as by
// [Parse].
func ParseDenied(networks string) (Option, error) {
	var p Policy
	var faults []crawl.FieldFault
	for entry := range strings.SplitSeq(networks, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		rule, msg := "cidr", "is no CIDR: write it like 203.0.113.0/24, without a scheme or port."
		_, err := netip.ParseAddr(entry)
		if err == nil || strings.Contains(entry, "/") {
			rule, msg = p.add(entry)
		}
		if rule != "" {
			faults = append(faults, crawl.FieldFault{
				Field: DeniedSetting, Rule: rule, Message: strconv.Quote(clip(entry, 100)) + " " + msg,
			})
		}
	}
	if len(faults) > 0 {
		return nil, &crawl.Fault{
			Code: crawl.CodeInvalid, Message: DeniedSetting + " must list CIDRs, separated by commas.", Fields: faults,
		}
	}
	return WithDenied(p.prefixes...), nil
}

// Policy says which private addresses may be dialled all the same. The zero
// Policy allows none. It is immutable and safe for concurrent use.
type Policy struct {
	prefixes []netip.Prefix          // any port
	sockets  map[netip.AddrPort]bool // this port only
	hosts    map[hostPort]bool       // host of the URL, whatever it resolves to
}

// hostPort is a host name, lower-case and without its final dot, and a port.
type hostPort struct {
	host string
	port uint16
}

// Parse reads the value of TRAWL_PRIVATE_HOSTS, a comma-separated list of
//
//	address:port  10.0.0.7:8080 or [fd00::7]:8080   that address and port
//	address       10.0.0.7 or fd00::7               that address, any port
//	CIDR          10.1.0.0/16                       every address in it, any port
//	name:port     registry.internal:5000            whatever that name resolves to
//
// The first three are compared with the address that is dialled, after DNS; the
// last with the host of the URL. So name:port trusts whoever answers for that name: it
// may resolve to another address each time, and each is dialled, on that port. An entry
// for an address trusts no name server.
//
// White space around entries and empty entries are ignored. All faults are reported at
// once in a *crawl.Fault of code [crawl.CodeInvalid], one field fault an entry.
func Parse(private string) (Policy, error) {
	p := Policy{sockets: map[netip.AddrPort]bool{}, hosts: map[hostPort]bool{}}
	var faults []crawl.FieldFault
	for entry := range strings.SplitSeq(private, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if rule, msg := p.add(entry); rule != "" {
			faults = append(faults, crawl.FieldFault{
				Field: Setting, Rule: rule, Message: strconv.Quote(clip(entry, 100)) + " " + msg,
			})
		}
	}
	if len(faults) > 0 {
		return Policy{}, &crawl.Fault{
			Code:    crawl.CodeInvalid,
			Message: Setting + " must list address:port, address, CIDR or name:port, separated by commas.",
			Fields:  faults,
		}
	}
	return p, nil
}

// add takes one entry into p, or returns the rule it breaks and what to do.
func (p *Policy) add(entry string) (rule, msg string) {
	if strings.Contains(entry, "://") {
		return "scheme", schemeMessage(entry)
	}
	if strings.Contains(entry, "/") {
		pre, err := netip.ParsePrefix(entry)
		switch {
		case err != nil:
			return "cidr", "is no CIDR: write it like 10.1.0.0/16, without a scheme or path."
		case pre != pre.Masked():
			// A typing error here opens a whole network: do not guess.
			return "cidr", "has bits set beyond its length: did you mean " + pre.Masked().String() + "?"
		case pre.Bits() == 0:
			return "cidr", "allows every address: name the networks that are meant."
		}
		if pre.Addr().Is4In6() {
			if pre.Bits() < 96 {
				return "cidr", "spans more than IPv4-mapped addresses: write the IPv4 network."
			}
			pre = netip.PrefixFrom(pre.Addr().Unmap(), pre.Bits()-96)
		}
		p.prefixes = append(p.prefixes, pre)
		return "", ""
	}
	if a, err := netip.ParseAddr(entry); err == nil {
		if a.Zone() != "" {
			return "zone", "has a zone: leave it out, an address is matched in every zone."
		}
		a = a.Unmap()
		p.prefixes = append(p.prefixes, netip.PrefixFrom(a, a.BitLen()))
		return "", ""
	}
	host, portText, err := net.SplitHostPort(entry)
	if err != nil {
		return "port", "needs a port: write name:port (IPv6 as [address]:port)."
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return "port", "needs a port between 1 and 65535."
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "zone", "has a zone: leave it out, an address is matched in every zone."
		}
		p.sockets[netip.AddrPortFrom(a.Unmap(), uint16(port))] = true
		return "", ""
	}
	name, err := hostName(host)
	if err != nil {
		return "host", "is neither an address nor a host name: write it like registry.internal:5000."
	}
	p.hosts[hostPort{name, uint16(port)}] = true
	return "", ""
}

// schemeMessage says what an entry that is a URL should be: the host of it with a port,
// that of its scheme where it names none.
func schemeMessage(entry string) string {
	const message = "is a URL: write address:port or name:port alone, without a scheme or path."
	u, err := url.Parse(entry)
	if err != nil {
		return message
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	meant := net.JoinHostPort(u.Hostname(), port)
	scratch := Policy{sockets: map[netip.AddrPort]bool{}, hosts: map[hostPort]bool{}}
	if rule, _ := scratch.add(meant); rule != "" {
		return message
	}
	return "is a URL: did you mean " + meant + "?"
}

// allows reports whether the policy lets a private address be dialled for a
// URL of the given host (as in the URL; may be empty).
func (p *Policy) allows(host string, to netip.AddrPort) bool {
	if len(p.hosts) > 0 && p.hosts[hostPort{canonicalHost(host), to.Port()}] {
		return true
	}
	addr := to.Addr().WithZone("").Unmap()
	if p.sockets[netip.AddrPortFrom(addr, to.Port())] {
		return true
	}
	for _, pre := range p.prefixes {
		if pre.Contains(addr) {
			return true
		}
	}
	return false
}

var errHostName = errors.New("not a host name")

// hostName returns s in the form that [canonicalHost] gives a URL's host. Underscores
// are taken, for container networks use them; a last label that begins with a
// digit is not, for URL parsers may read such a name as an IPv4 address.
func hostName(s string) (string, error) {
	s, err := idna.Punycode.ToASCII(canonicalHost(s))
	if err != nil || s == "" || len(s) > 253 {
		return "", errHostName
	}
	last := ""
	for last = range strings.SplitSeq(s, ".") {
		if last == "" || len(last) > 63 {
			return "", errHostName
		}
		for _, c := range []byte(last) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", errHostName
			}
		}
	}
	if c := last[0]; c >= '0' && c <= '9' {
		return "", errHostName
	}
	return s, nil
}

func canonicalHost(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// clip shortens s to at most n bytes for a message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
