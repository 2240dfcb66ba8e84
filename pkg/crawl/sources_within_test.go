package crawl

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSourcesWithin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ tenant, service, want string }{
		{"*", "a.test", "a.test"},
		{"a.test", "*", "a.test"},
		{"*", "*", "*"},
		{"", "*", ""},
		{"*", "", ""},
		{"a.test", "b.test", ""},
		{"*.a.test", "a.test", ""},
		{"x.a.test", "*.a.test", "x.a.test"},
		{"*.a.test", "*.x.a.test", "*.x.a.test"},
		{"*.a.test", "*.b.test", ""},
		{"https://a.test/3/", "a.test", "https://a.test/3/"},
		{"https://a.test/3/", "https://a.test/3", "https://a.test/3/"},
		{"https://a.test/3/", "https://a.test/4/", ""},
		{"https://a.test/3/", "http://a.test/3/", ""},
		{"a.test", "a.test:443", "https://a.test/"},
		{"a.test", "a.test:80", "http://a.test/"},
		{"a.test", "a.test:81", ""},
		{"a.test:443", "https://a.test/x", "https://a.test/x"},
		{"https://*.a.test:8443/docs/", "*.a.test:8443", "https://*.a.test:8443/docs/"},
		{"https://*.a.test/docs/", "b.a.test", "https://b.a.test/docs/"},
		{"a.test,b.test", "b.test,c.test,*", "a.test,b.test"},
	} {
		got := mustSources(t, tt.tenant).Within(mustSources(t, tt.service))
		if diff := cmp.Diff(strings.Join(got.Strings(), ","), tt.want); diff != "" {
			t.Errorf("%q within %q: -got +want\n%s", tt.tenant, tt.service, diff)
		}
	}
}

// What two lists allow together is what each of them allows: a tenant's list never
// widens the service's, and its spelling says the same as it.
func TestSourcesWithinIsBoth(t *testing.T) {
	t.Parallel()
	host := rapid.SampledFrom([]string{"a.test", "b.a.test", "c.b.a.test", "ba.test", "10.0.0.1"})
	port := rapid.SampledFrom([]string{"", ":80", ":443", ":81"})
	path := rapid.SampledFrom([]string{"/", "/3", "/3/", "/33", "/3/x", "/3/..%2Fx", "/4/"})
	scheme := rapid.SampledFrom([]string{"http://", "https://"})
	entry := rapid.Custom(func(t *rapid.T) string {
		h := host.Draw(t, "host")
		if rapid.Bool().Draw(t, "below") && h != "10.0.0.1" {
			h = "*." + h
		}
		h += port.Draw(t, "port")
		switch rapid.IntRange(0, 4).Draw(t, "form") {
		case 0:
			return "*"
		case 1, 2:
			return h
		}
		return scheme.Draw(t, "scheme") + h + path.Draw(t, "path")
	})
	list := rapid.Map(rapid.SliceOfN(entry, 0, 3), func(s []string) string { return strings.Join(s, ",") })
	rapid.Check(t, func(t *rapid.T) {
		a, errA := ParseSources(list.Draw(t, "tenant"))
		b, errB := ParseSources(list.Draw(t, "service"))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		both := a.Within(b)
		again, err := ParseSources(strings.Join(both.Strings(), ","))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			u, err := ParseURL(scheme.Draw(t, "scheme") + host.Draw(t, "host") + port.Draw(t, "port") + path.Draw(t, "path"))
			if err != nil {
				t.Fatal(err)
			}
			want := a.Allows(u) && b.Allows(u)
			if both.Allows(u) != want || again.Allows(u) != want || b.Within(a).Allows(u) != want {
				t.Fatalf("%s: %v, spelt %v; want %v", u, both.Strings(), both.Allows(u), want)
			}
		}
	})
}
