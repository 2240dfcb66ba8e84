package fetch

import (
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/worker/robots"
)

// TestRefresh is RED-11: where a refresh leads is a link of the page.
func TestRefresh(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, page string
		want       []string
	}{
		{"RED-11 content first", `<meta content="0;url=/dummy" http-equiv="refresh">`, []string{"/dummy"}},
		{"RED-11 upper case, quoted", `<META HTTP-EQUIV=Refresh CONTENT="5; URL='../up'">`, []string{"/up"}},
		{"RED-11 to itself", `<meta http-equiv=refresh content="0;url=/dir/p">`, []string{"/dir/p"}},
		{"RED-11 reload", `<meta http-equiv=refresh content="30">`, nil},
		{
			"RED-11 noscript",
			`<noscript><meta http-equiv=refresh content="0;URL=/ns"></noscript>`,
			[]string{"/ns"},
		},
		{"in the body", `<body><p>x<meta http-equiv=refresh content="0;url=b">`, []string{"/dir/b"}},
		{
			"against the base, in order",
			`<a href=1>x</a><meta http-equiv=refresh content="0;url=2"><base href=/b/><a href=3>x</a>`,
			[]string{"/b/1", "/b/2", "/b/3"},
		},
		{"not in a template", `<template><meta http-equiv=refresh content="0;url=/t"></template>`, nil},
		{"not in a comment", `<!-- <meta http-equiv=refresh content="0;url=/c"> -->`, nil},
		{"another pragma", `<meta http-equiv=x-refresh content="0;url=/x">`, nil},
		{"name is not http-equiv", `<meta name=refresh content="0;url=/x">`, nil},
		{"once more", `<meta http-equiv=refresh content="0;url=/x"><a href=/x>x</a>`, []string{"/x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, linked(read(tt.page, "utf-8"))); diff != "" {
				t.Errorf("links of %q (-want +got):\n%s", tt.page, diff)
			}
		})
	}
}

// TestRefreshTarget holds the steps of the standard.
func TestRefreshTarget(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"0;url=/x":            "/x",
		"0; url=/x":           "/x",
		" 0 ; URL = /x ":      "/x ", // what is around it falls when it is resolved
		"0,/x":                "/x",
		"0 /x":                "/x",
		"0\t;\n/x":            "/x",
		"1.5;url=/x":          "/x",
		".5;url=/x":           "/x",
		"3;url='/a;b'c":       "/a;b",
		`3;url="/a b"`:        "/a b",
		"3;'/x":               "/x",
		"3;urls=/x":           "urls=/x",
		"3;url":               "url",
		"3;url/x":             "url/x",
		"3;/x?url=/y":         "/x?url=/y",
		"":                    "",
		"5":                   "",
		"5;":                  "",
		"5; url=":             "",
		"5; url=''":           "",
		"url=/x":              "",
		"x;url=/x":            "",
		"-1;url=/x":           "",
		"5x;url=/x":           "",
		"\u00a00;url=/x":      "",
		"99999999999;url=/x":  "/x",
		"0;url=javascript:x":  "javascript:x",
		"0;URL=http://o.test": "http://o.test",
	}
	for content, want := range tests {
		if got, ok := refreshTarget(content); got != want || ok != (want != "") {
			t.Errorf("refreshTarget(%q) = %q, %t, want %q", content, got, ok, want)
		}
	}
}

// TestRefreshHeader: browsers take the header as they take the element.
func TestRefreshHeader(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"page": "<title>x</title><base href=/b/>", "empty page": ""} {
		s := serve(t, answer("200 OK", "Content-Type: text/html\r\nRefresh: 0;url=next", body))
		res, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{URL: s.url(t, "/dir/p"), Links: true})
		want := map[string]string{"page": "/b/next", "empty page": "/dir/next"}[name]
		if diff := cmp.Diff([]string{want}, paths(s, res)); diff != "" || err != nil {
			t.Errorf("RED-11 %s: %v, links (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestDirectives: what the header and every meta element of a page ask counts
// together, for everyone and for this crawler.
func TestDirectives(t *testing.T) {
	t.Parallel()
	const none = "<title>x</title>"
	noindex, nofollow := robots.Directives{NoIndex: true}, robots.Directives{NoFollow: true}
	both := robots.Directives{NoIndex: true, NoFollow: true}
	html := func(header, body string) handler {
		return answer("200 OK", "Content-Type: text/html"+header, body)
	}
	tests := []struct {
		name string
		h    handler
		want robots.Directives
	}{
		{"nothing", html("", none), robots.Directives{}},
		{"meta", html("", "<meta name=robots content=noindex>"), noindex},
		{"upper case, content first", html("", "<META CONTENT='NoFollow' NAME=ROBOTS>"), nofollow},
		{"our name", html("", "<meta name=testbot content=none>"), both},
		{"another's name", html("", "<meta name=otherbot content=none>"), robots.Directives{}},
		{"two elements", html("", "<meta name=robots content=noindex><meta name=robots content=nofollow>"), both},
		{"in the body", html("", "<p>x</p><meta name=robots content=noindex>"), noindex},
		{"in a noscript", html("", "<noscript><meta name=robots content=noindex></noscript>"), noindex},
		{
			"not in a template, comment or script",
			html("", "<template><meta name=robots content=none></template><!--<meta name=robots content=none>-->"+
				"<script>'<meta name=robots content=none>'</script>"),
			robots.Directives{},
		},
		{"svg ends before it", html("", "<svg><path><meta name=robots content=noindex>"), noindex},
		{"header", html("\r\nX-Robots-Tag: noindex", none), noindex},
		{"two headers", html("\r\nX-Robots-Tag: noindex\r\nx-robots-tag: testbot: nofollow", none), both},
		{"header of another", html("\r\nX-Robots-Tag: otherbot: none", none), robots.Directives{}},
		{"header and meta", html("\r\nX-Robots-Tag: nofollow", "<meta name=robots content=noindex>"), both},
		{
			"no page",
			answer("200 OK", "Content-Type: application/pdf\r\nX-Robots-Tag: noindex", "%PDF-1.4"),
			noindex,
		},
		{
			"unavailable after",
			html("\r\nX-Robots-Tag: unavailable_after: 2026-03-04", none),
			robots.Directives{UnavailableAfter: time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)},
		},
		{
			"of the final answer only",
			func(c net.Conn, target string) bool {
				if target == "/" {
					return answer("302 Found", "Location: /x\r\nX-Robots-Tag: none", "")(c, target)
				}
				return html("", none)(c, target)
			},
			robots.Directives{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, f := serve(t, tt.h), newFetcher(t, Options{})
			res, err := f.Fetch(t.Context(), Request{URL: s.url(t, "/"), Product: "TestBot"})
			if diff := cmp.Diff(tt.want, res.Robots); diff != "" || err != nil {
				t.Errorf("%v, directives (-want +got):\n%s", err, diff)
			}
			res, err = f.Fetch(t.Context(), Request{URL: s.url(t, "/")})
			if res.Robots != (robots.Directives{}) || err != nil {
				t.Errorf("%v, directives %+v without a product", err, res.Robots)
			}
		})
	}
}
