package robots

import (
	"fmt"
	"strings"
	"testing"
)

func benchFile(rules int) []byte {
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	for i := range rules {
		switch i % 10 {
		case 0:
			fmt.Fprintf(&b, "Disallow: /*/print-%d$\n", i)
		case 1:
			fmt.Fprintf(&b, "Disallow: /catalogue/*?sort=%d\n", i)
		case 2:
			fmt.Fprintf(&b, "Allow: /catalogue/public-%d/\n", i)
		default:
			fmt.Fprintf(&b, "Disallow: /catalogue/section-%d/private/\n", i)
		}
	}
	b.WriteString("\nSitemap: https://site.test/sitemap.xml\n")
	return []byte(b.String())
}

func BenchmarkParse100KiB(b *testing.B) {
	for name, product := range map[string]string{"ours": "us", "others": "them"} {
		body := benchFile(2700)[:100<<10]
		if name == "others" { // a group that names them and nobody else: all of it is skipped
			body = append([]byte("User-agent: them\nDisallow: /x\n\n"), body...)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				Parse(body, product)
			}
		})
	}
}

func BenchmarkAllowed1000Rules(b *testing.B) {
	r := Parse(benchFile(1000), "us")
	for name, path := range map[string]string{
		"plain":   "/catalogue/section-12/public/item-7.html?page=3",
		"encoded": "/catalogue/section-12/p%C3%BCblic/item-7.html?u=%2F",
		"blocked": "/catalogue/section-997/private/x",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Allowed(path)
			}
		})
	}
}

// BenchmarkAllowedHostile is the longest path that a URL has against files made to
// be slow.
func BenchmarkAllowedHostile(b *testing.B) {
	path := "/" + strings.Repeat("a", 8191)
	for name, file := range hostileFiles() {
		if !strings.Contains(name, "pattern") && !strings.Contains(name, "literal") {
			continue
		}
		r := Parse([]byte(file), "us")
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Allowed(path)
			}
		})
	}
}

// TestAllowedAllocates nothing for what nearly every URL is. It is not parallel:
// allocations are counted in the whole process.
func TestAllowedAllocates(t *testing.T) {
	r := Parse(benchFile(1000), "us")
	for _, path := range []string{"/", "/catalogue/item-7.html?page=3&x=(1)", "/catalogue/section-997/private/x"} {
		if n := testing.AllocsPerRun(100, func() { r.Allowed(path) }); n != 0 {
			t.Errorf("%q costs %v allocations", path, n)
		}
	}
}
