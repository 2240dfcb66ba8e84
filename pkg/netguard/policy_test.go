package netguard

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

func TestParseAllows(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, setting, host, to string
		want                    bool
	}{
		{"nothing is allowed by default", "", "", "127.0.0.1:80", false},
		{"address and port", "10.0.0.7:8080", "x.test", "10.0.0.7:8080", true},
		{"address and another port", "10.0.0.7:8080", "x.test", "10.0.0.7:8081", false},
		{"address, any port", "10.0.0.7", "", "10.0.0.7:1", true},
		{"another address", "10.0.0.7", "", "10.0.0.8:1", false},
		{"network", "10.1.0.0/16", "", "10.1.255.255:80", true},
		{"beyond the network", "10.1.0.0/16", "", "10.2.0.0:80", false},
		{"IPv6 address and port", "[fd00::7]:8080", "", "[fd00::7]:8080", true},
		{"IPv6 address", "fd00::7", "", "[fd00::7]:9", true},
		{"IPv6 network", "fd00::/8", "", "[fdff::1]:9", true},
		{"mapped entry, plain address", "::ffff:10.0.0.7", "", "10.0.0.7:80", true},
		{"mapped network, plain address", "::ffff:10.0.0.0/104", "", "10.9.9.9:80", true},
		{"plain entry, mapped address", "10.0.0.7", "", "[::ffff:10.0.0.7]:80", true},
		{"in every zone", "fe80::1", "", "[fe80::1%eth0]:80", true},
		{"name and port", "registry.internal:5000", "registry.internal", "10.0.0.1:5000", true},
		{
			"name is no matter of letter case or final dot",
			"Registry.Internal.:5000",
			"REGISTRY.internal.",
			"10.0.0.1:5000",
			true,
		},
		{"name on another port", "registry.internal:5000", "registry.internal", "10.0.0.1:80", false},
		{"another name of the same address", "registry.internal:5000", "evil.test", "10.0.0.1:5000", false},
		{"name is no suffix", "internal:5000", "registry.internal", "10.0.0.1:5000", false},
		{"name with an underscore", "my_app:80", "my_app", "172.18.0.2:80", true},
		{"international name", "bücher.test:80", "xn--bcher-kva.test", "172.18.0.2:80", true},
		{
			"second of several, with blanks and an empty entry",
			" 10.0.0.7:80 ,, 10.0.0.8 ",
			"",
			"10.0.0.8:443",
			true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := Parse(tt.setting)
			if err != nil {
				t.Fatalf("Parse(%q): %v", tt.setting, err)
			}
			if got := p.allows(tt.host, netip.MustParseAddrPort(tt.to)); got != tt.want {
				t.Errorf(
					"with %q, %s (host %q) allowed = %t, want %t",
					tt.setting,
					tt.to,
					tt.host,
					got,
					tt.want,
				)
			}
		})
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := Parse(
		"10.0.0.1/8, http://a.test/, localhost, a.test:0, a.test:70000, 10.0.0.7:80, fe80::1%eth0, " +
			"[fe80::1%eth0]:80, 0.0.0.0/0, a b:80, 1.2.3.4.5:80, ::/64, :80, ::ffff:0:0/95, a..b:80, 0x7f.1:80",
	)
	f, ok := errors.AsType[*crawl.Fault](err)
	if !ok {
		t.Fatalf("Parse: %v, want a *crawl.Fault", err)
	}
	if f.Code != crawl.CodeInvalid {
		t.Errorf("code %q, want %q", f.Code, crawl.CodeInvalid)
	}
	var rules []string
	for _, ff := range f.Fields {
		if ff.Field != Setting {
			t.Errorf("fault names field %q, want %q", ff.Field, Setting)
		}
		rules = append(rules, ff.Rule)
	}
	// ::/64 and [::]-like networks are odd but well formed: no fault.
	want := []string{
		"cidr", "scheme", "port", "port", "port", "zone", "zone", "cidr", "host", "host", "host", "cidr", "host", "host",
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s\n%v", diff, err)
	}
	if !strings.Contains(f.Fields[0].Message, "10.0.0.0/8") {
		t.Errorf("message %q does not say which network was meant", f.Fields[0].Message)
	}
}

// Whoever copies the URL of a site is told the entry that it stands for.
func TestParseGuessesFromURL(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"http://127.0.0.1:8731/":       "did you mean 127.0.0.1:8731?",
		"HTTP://intranet/a/b?c":        "did you mean intranet:80?",
		"https://registry.internal":    "did you mean registry.internal:443?",
		"http://[fd00::7]:8080/":       "did you mean [fd00::7]:8080?",
		"redis://10.0.0.7":             "without a scheme or path",
		"http://10.0.0.7:0/":           "without a scheme or path",
		"http://a b/":                  "without a scheme or path",
		"http://":                      "without a scheme or path",
		"http://[fe80::1%25eth0]:80/x": "without a scheme or path",
	} {
		_, err := Parse(entry)
		f, ok := errors.AsType[*crawl.Fault](err)
		if !ok || len(f.Fields) != 1 || f.Fields[0].Rule != "scheme" || !strings.Contains(f.Fields[0].Message, want) {
			t.Errorf("%q: %v, want %q", entry, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "10.0.0.7:8080", "10.1.0.0/16", "[fd00::7]:80", "::ffff:1.2.3.4/96", "a.test:80", "bücher.test:80", "fe80::1%x",
		",,", "0/0", "a:b:c", "[::1", "::ffff:0:0/95",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			if f, ok := errors.AsType[*crawl.Fault](err); !ok || len(f.Fields) == 0 {
				t.Fatalf("Parse(%q): %v is no fault that names a field", s, err)
			}
			return
		}
		for _, pre := range p.prefixes {
			if pre.Bits() == 0 || pre.Addr().Is4In6() || pre.Addr().Zone() != "" {
				t.Errorf("Parse(%q) allows %v", s, pre)
			}
		}
		for h := range p.hosts {
			if again, err := hostName(h.host); err != nil || again != h.host {
				t.Errorf("Parse(%q): host %q is not canonical: %q, %v", s, h.host, again, err)
			}
		}
		if strings.Trim(s, " ,") == "" && (len(p.hosts)+len(p.sockets)+len(p.prefixes)) > 0 {
			t.Errorf("Parse(%q) allows something", s)
		}
	})
}

// A network of one's own that is public for everybody else is closed by its setting, but for
// what is opened by name.
func TestDenied(t *testing.T) {
	t.Parallel()
	denied, err := ParseDenied(" 2a00:1450::/32, 8.8.8.0/24,1.1.1.1 ,")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := Parse("8.8.8.8:53")
	if err != nil {
		t.Fatal(err)
	}
	guard := New(policy, denied, nil)
	for address, refused := range map[string]bool{
		"8.8.8.1:53": true, "8.8.8.8:53": false, "8.8.8.8:54": true, "1.1.1.1:53": true, "1.1.1.2:53": false,
		"[2a00:1450::1]:443": true, "[2a00:1451::1]:443": false,
	} {
		network := "tcp4"
		if address[0] == '[' {
			network = "tcp6"
		}
		err := guard.check("x.test", network, address)
		if got := crawl.CodeOf(err) == crawl.CodePrivateAddress; got != refused {
			t.Errorf("%s: %v, want refused: %v", address, err, refused)
		}
	}
	_, err = ParseDenied("10.0.0.1/8,8.8.8.8:53,*,dns.google,https://8.8.8.0/24")
	var f *crawl.Fault
	if !errors.As(err, &f) || len(f.Fields) != 5 {
		t.Fatalf("got %v, want five faults", err)
	}
}
