package robots

import (
	"strings"
	"testing"
)

// TestAllowed pins who is let in where. Names hold the ids of the handed cases, the
// section of RFC 9309, or what the library in colly does instead.
func TestAllowed(t *testing.T) {
	t.Parallel()
	const everyone = "User-agent: *\n"
	simple := strings.Join([]string{ // RFC 9309 s5.1
		"User-Agent: *", "Disallow: *.gif$", "Disallow: /example/", "Allow: /publications/", "",
		"User-Agent: foobot", "Disallow:/", "Allow:/example/page.html", "Allow:/example/allowed.gif", "",
		"User-Agent: barbot", "User-Agent: bazbot", "Disallow: /example/page.html", "",
		"User-Agent: quxbot", "",
	}, "\n")
	for _, tt := range []struct {
		name, product    string // product is "examplebot" when empty
		file             string
		blocked, allowed []string
	}{
		// Examples of the standard.
		{
			name: "s5.1 others", file: simple,
			blocked: []string{"/x.gif", "/publications.gif", "/example/", "/example/page.html"},
			allowed: []string{"/", "/x.gif?y", "/example", "/publications/x.gif.png", "/publications/x.gif"},
		},
		{
			name: "s5.1 foobot", product: "FooBot", file: simple,
			blocked: []string{"/", "/publications/", "/example/page", "/example/allowed.gi"},
			allowed: []string{"/example/page.html", "/example/allowed.gif", "/example/page.html?x"},
		},
		{
			name: "s5.1 barbot", product: "barbot", file: simple,
			blocked: []string{"/example/page.html"}, allowed: []string{"/x.gif", "/example/"},
		},
		{
			name: "s5.1 bazbot", product: "bazbot", file: simple,
			blocked: []string{"/example/page.html"}, allowed: []string{"/x.gif", "/example/"},
		},
		{
			name: "s5.1 quxbot", product: "quxbot",
			file: simple, allowed: []string{"/", "/x.gif", "/example/page.html"},
		},
		{
			name: "s5.2", file: everyone + "Allow: /example/page/\nDisallow: /example/page/disallowed.gif",
			blocked: []string{"/example/page/disallowed.gif"}, allowed: []string{"/example/page/disallow.gif"},
		},
		{
			name: "s2.2.1 groups merged",
			file: "user-agent: ExampleBot\ndisallow: /foo\ndisallow: /bar\n\n" +
				"user-agent: ExampleBot\ndisallow: /baz\n",
			blocked: []string{"/foo", "/bar", "/baz"}, allowed: []string{"/"},
		},
		{
			name:    "s2.2.1 no group but the others'",
			file:    "user-agent: *\ndisallow: /foo\ndisallow: /bar\n\nuser-agent: BazBot\ndisallow: /baz\n",
			blocked: []string{"/foo", "/bar"}, allowed: []string{"/baz"},
		},
		{name: "s2.2.1 no group at all", file: "user-agent: BazBot\ndisallow: /\n", allowed: []string{"/", "/a"}},
		{
			name: "s2.2.2 plain", file: everyone + "Disallow: /foo/bar?baz=quz",
			blocked: []string{"/foo/bar?baz=quz", "/foo/bar?baz=quz&a"},
			allowed: []string{"/foo/bar?baz=qu", "/foo/bar"},
		},
		{
			name: "s2.2.2 reserved in a query", file: everyone + "Disallow: /foo/bar?baz=https://foo.bar",
			blocked: []string{"/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"},
			allowed: []string{"/foo/bar?baz=http://foo.bar"},
		},
		{
			name:    "s2.2.2 reserved in a query, encoded",
			file:    everyone + "Disallow: /foo/bar?baz=https%3a%2f%2Ffoo.bar",
			blocked: []string{"/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"},
			allowed: []string{"/foo/bar%3Fbaz=https://foo.bar"},
		},
		{
			name: "s2.2.2 not ASCII", file: everyone + "Disallow: /foo/bar/ツ",
			blocked: []string{"/foo/bar/%E3%83%84", "/foo/bar/ツ", "/foo/bar/%e3%83%84x"},
			allowed: []string{"/foo/bar/%E3%83%83"},
		},
		{
			name: "s2.2.2 not ASCII, encoded", file: everyone + "Disallow: /foo/bar/%E3%83%84",
			blocked: []string{"/foo/bar/%E3%83%84", "/foo/bar/ツ"}, allowed: []string{"/foo/bar/%E3%83"},
		},
		{
			name: "s2.2.2 unreserved, encoded", file: everyone + "Disallow: /foo/bar/%62%61%7A",
			blocked: []string{"/foo/bar/baz", "/foo/bar/b%61z"}, allowed: []string{"/foo/bar/BAZ"},
		},
		{
			name: "s2.2.3 literal star", file: everyone + "Disallow: /path/file-with-a-%2A.html",
			blocked: []string{"/path/file-with-a-*.html", "/path/file-with-a-%2a.html"},
			allowed: []string{"/path/file-with-a-b.html"},
		},
		{
			name: "s2.2.3 literal dollar", file: everyone + "Disallow: /path/foo-%24",
			blocked: []string{"/path/foo-$", "/path/foo-%24", "/path/foo-$x"}, allowed: []string{"/path/foo-"},
		},
		{
			name: "s2.2.3 anchor", file: everyone + "Disallow: /\nAllow: /this/path/exactly$",
			blocked: []string{"/this/path/exactly/", "/this/path/exactly?"},
			allowed: []string{"/this/path/exactly"},
		},
		{
			name: "s2.2.3 wildcard", file: everyone + "Disallow: /this/*/exactly",
			blocked: []string{"/this/x/exactly", "/this//exactly", "/this/a/b/exactly?c"},
			allowed: []string{"/this/exactly"},
		},
		{
			name: "s2.2.2 robots.txt itself", file: everyone + "Disallow: /",
			blocked: []string{"/", "/robots.txt.bak", "/a/robots.txt", "/robots.txt?a"},
			allowed: []string{"/robots.txt"},
		},

		// The handed cases.
		{
			name: "ROB-05 byte order mark",
			file: "\xEF\xBB\xBFUser-agent: *\nDisallow: /private\n", blocked: []string{"/private"},
		},
		{name: "ROB-05 CR only", file: "User-agent: *\rDisallow: /private\r", blocked: []string{"/private"}},
		{name: "ROB-05 CRLF", file: "User-agent: *\r\n\r\nDisallow: /private\r\n", blocked: []string{"/private"}},
		{
			name: "ROB-05 UTF-16 little endian", file: utf16File("User-agent: *\nDisallow: /privé\n", false),
			blocked: []string{"/priv%C3%A9"}, allowed: []string{"/"},
		},
		{
			name: "ROB-05 UTF-16 big endian",
			file: utf16File("User-agent: *\nDisallow: /private", true), blocked: []string{"/private"},
		},
		{
			name: "ROB-05 UTF-16 cut in a unit",
			file: utf16File("User-agent: *\nDisallow: /a\n", false) + "/", blocked: []string{"/a"},
		},
		{
			name: "ROB-05 UTF-16 without a mark",
			file: utf16File(everyone+"Disallow: /", false)[2:], allowed: []string{"/a"},
		},
		{
			name: "ROB-06",
			file: everyone + "Disallow: /*s=\nDisallow: /*.pdf$\nDisallow: /*/print$\nDisallow: *secret\n" +
				"Allow: /page\nDisallow: /*.html\n",
			blocked: []string{"/?s=1", "/a.pdf", "/d/print", "/x/secret", "/page.html"},
			allowed: []string{"/a.pdf?x=1", "/d/print/x", "/page"},
		},
		{
			name: "ROB-06 Allow wins ties",
			file: everyone + "Disallow: /page\nAllow: /page", allowed: []string{"/page", "/page/x"},
		},
		{
			name:    "ROB-06 Allow wins ties with wildcards",
			file:    everyone + "Allow: /*a\nDisallow: /pa\nDisallow: /q",
			blocked: []string{"/q"}, allowed: []string{"/pa", "/qa"},
		},
		{
			name: "ROB-10 variant 1",
			file: "User-agent: examplebot\nDisallow: /a\n\nUser-agent: *\nDisallow: /b\n\n" +
				"User-agent: ExampleBot\nDisallow: /c\n",
			blocked: []string{"/a", "/c"}, allowed: []string{"/b"},
		},
		{
			name: "ROB-10 variant 2",
			file: "User-agent: *\nUser-agent: other\nDisallow: /a\n", blocked: []string{"/a"},
		},
		{name: "ROB-10 variant 3", file: "User-agent: examplebot\n\nDisallow: /a\n", blocked: []string{"/a"}},
		{
			name:    "ROB-10 variant 4, contested",
			file:    "User-agent: *\nCrawl-delay: 1\nUser-agent: badbot\nDisallow: /\n",
			blocked: []string{"/", "/a"},
		},
		{
			name: "ROB-10 variant 4 for the other", product: "badbot",
			file:    "User-agent: *\nCrawl-delay: 1\nUser-agent: badbot\nDisallow: /\n",
			blocked: []string{"/", "/a"},
		},
		{
			name:    "ROB-10 variant 5",
			file:    "User-agent: *\nDisallow: /a\nSitemap: http://site.test/s.xml\nDisallow: /b\n",
			blocked: []string{"/a", "/b"}, allowed: []string{"/c"},
		},
		{
			name: "ROB-10 google/robotstxt#51, contested",
			file: "# Slow down bots\nUser-agent: *\nCrawl-delay: 10\n\n# Disallow: Badbot\n" +
				"User-agent: badbot\nDisallow: /\n\n" +
				"User-agent: *\nDisallow:\n",
			blocked: []string{"/a"},
		},
		{
			name:    "ROB-10 google/robotstxt#51 lifted by Allow",
			file:    "User-agent: *\nCrawl-delay: 10\nUser-agent: badbot\nDisallow: /\nUser-agent: *\nAllow: /\n",
			allowed: []string{"/a"},
		},
		{
			name:    "ROB-10 a sitemap between agents",
			file:    "User-agent: examplebot\nSitemap: /s\nUser-agent: a\nDisallow: /x\n",
			blocked: []string{"/x"},
		},
		{
			name:    "ROB-10 an unknown line between agents",
			file:    "User-agent: examplebot\nHost: site.test\nUser-agent: b\nNoindex: /y\nDisallow: /x\n",
			blocked: []string{"/x"}, allowed: []string{"/y"},
		},
		{
			name: "ROB-10 an empty rule ends the agents",
			file: "User-agent: examplebot\nDisallow:\nUser-agent: b\nDisallow: /\n", allowed: []string{"/"},
		},
		{
			name: "ROB-12 last line of a long file",
			file: longFile(450<<10) + "Disallow: /late\n", blocked: []string{"/late", "/zz"},
		},
		{
			name: "ROB-12 cut at the end of a line",
			file: fill(everyone+"Disallow: /late\n", MaxBytes) + "Disallow: /more\n", allowed: []string{"/more"},
		},
		{
			name: "ROB-01 an error page in HTML",
			file: "<html><body>Disallow: /<p>User-agent: *<p>Disallow: /\n</html>", allowed: []string{"/a"},
		},

		// What the library in colly gets wrong.
		{
			name: "colly unreadable delay",
			file: everyone + "Crawl-delay: soon\nDisallow: /a", blocked: []string{"/a"}, allowed: []string{"/b"},
		},
		{
			name: "colly rule before the first group",
			file: "Disallow: /\nAllow: /x\n" + everyone + "Disallow: /a", blocked: []string{"/a"},
			allowed: []string{"/b"},
		},
		{name: "colly only rules without a group", file: "Disallow: /\n", allowed: []string{"/a"}},
		{
			name: "colly wildcard is anchored",
			file: everyone + "Disallow: /a*b", blocked: []string{"/a1b", "/ab"},
			allowed: []string{"/zzz/a1b", "/A1b"},
		},
		{
			name: "colly end is anchored",
			file: everyone + "Disallow: /x$", blocked: []string{"/x"}, allowed: []string{"/q/x", "/x/", "/x?"},
		},
		{
			name: "colly length in octets",
			file: everyone + "Allow: /abcd\nDisallow: /a.*", blocked: []string{"/a.b"},
			allowed: []string{"/abcd"},
		},
		{
			// Eight octets against seven; quoted for a regular expression the shorter is ten.
			name: "colly length without escapes", file: everyone + "Allow: /a.b.c\nDisallow: /a*b*c*d",
			blocked: []string{"/a.b.c.d"}, allowed: []string{"/a.b.c"},
		},
		{
			name: "colly prefix of our name", product: "FarmBot",
			file: "User-agent: Farm\nDisallow: /\n", allowed: []string{"/a"},
		},
		{
			name: "colly our name is a prefix", product: "Farm",
			file: "User-agent: FarmBot\nDisallow: /\n", allowed: []string{"/a"},
		},
		{
			name: "colly product in a header", product: ProductToken("Mozilla/5.0 (compatible; FarmBot/1.0)"),
			file: "User-agent: farmbot\nDisallow: /", blocked: []string{"/a"},
		},
		{
			name: "colly query as sent",
			file: everyone + "Disallow: /s?z=1", blocked: []string{"/s?z=1&a=2"},
			allowed: []string{"/s?a=2&z=1"},
		},
		{
			name: "colly lower-case encoding",
			file: everyone + "Disallow: /%c3%bc", blocked: []string{"/%C3%BC", "/%c3%bc", "/ü"},
			allowed: []string{"/%C3"},
		},
		{
			name: "colly not encoded",
			file: everyone + "Disallow: /ü", blocked: []string{"/%C3%BC", "/%c3%bc"}, allowed: []string{"/u"},
		},

		// Percent-encoding.
		{
			name: "encoded slash in a rule",
			file: everyone + "Disallow: /a%2fb", blocked: []string{"/a%2Fb", "/a%2fb/c"},
			allowed: []string{"/a/b"},
		},
		{
			name: "encoded slash in a path",
			file: everyone + "Disallow: /a/b", blocked: []string{"/a/b"}, allowed: []string{"/a%2Fb"},
		},
		{
			name: "encoded slash behind a wildcard",
			file: everyone + "Disallow: /*%2Fx", blocked: []string{"/a%2fx", "/?u=%2Fx"},
			allowed: []string{"/a/x"},
		},
		{
			name: "slash behind a wildcard",
			file: everyone + "Disallow: /*/x", blocked: []string{"/a/x", "/?u=/x", "/?u=%2Fx"},
			allowed: []string{"/a%2Fx"},
		},
		{
			name: "other reserved in a query",
			file: everyone + "Disallow: /?a=b&c", blocked: []string{"/?a=b&c"},
			allowed: []string{"/?a=b%26c", "/?a%3Db&c"},
		},
		{
			name: "encoded question mark",
			file: everyone + "Disallow: /a%3Fb", blocked: []string{"/a%3fb"}, allowed: []string{"/a?b"},
		},
		{
			name: "tilde and hyphen",
			file: everyone + "Disallow: /%7Ejoe%2Dx", blocked: []string{"/~joe-x", "/%7ejoe-x"},
			allowed: []string{"/joe-x"},
		},
		{
			name:    "braces",
			file:    everyone + "Disallow: /{id}|^`\"<>\\",
			blocked: []string{"/%7Bid%7D%7C%5E%60%22%3C%3E%5C", "/{id}|%5e`\"<>\\"},
		},
		{
			name: "space",
			file: everyone + "Disallow: /a b ", blocked: []string{"/a%20b", "/a b"},
			allowed: []string{"/a", "/a+b"},
		},
		{
			name:    "stray percent",
			file:    everyone + "Disallow: /100%\nDisallow: /%zz\nDisallow: /%4",
			blocked: []string{"/100%", "/100%25", "/%zz", "/%25zz", "/%4"}, allowed: []string{"/100"},
		},
		{
			name: "no encoding made of two",
			file: everyone + "Disallow: /%%34%31", blocked: []string{"/%25%34%31", "/%2541"},
			allowed: []string{"/A", "/%41"},
		},
		{
			name: "Latin-1 byte",
			file: everyone + "Disallow: /caf\xe9", blocked: []string{"/caf%E9", "/caf%e9s"},
			allowed: []string{"/caf%C3%A9"},
		},
		{
			name: "NUL in a rule",
			file: everyone + "Disallow: /a\x00b\nDisallow: /c", blocked: []string{"/a%00b", "/c"},
			allowed: []string{"/a"},
		},
		{name: "NUL in a name", file: "User-agent\x00: *\nDisallow: /", allowed: []string{"/a"}},
		{
			name: "dollar in the middle",
			file: everyone + "Disallow: /a$b\nDisallow: /c$$", blocked: []string{"/a$b", "/a%24bc", "/c$"},
			allowed: []string{"/a", "/c", "/c$x"},
		},
		{
			name: "no escape in the length",
			file: everyone + "Allow: /ü\nDisallow: /%C3%BC", allowed: []string{"/%C3%BC"},
		},

		// Wildcards.
		{name: "everything", file: everyone + "Disallow: *", blocked: []string{"/", "/a?b"}},
		{
			name: "wildcard at the end",
			file: everyone + "Disallow: /a*", blocked: []string{"/a", "/ab"}, allowed: []string{"/b"},
		},
		{
			name: "wildcard at the end counts",
			file: everyone + "Allow: /a\nDisallow: /a*", blocked: []string{"/a", "/ab"},
		},
		{
			name: "wildcard and anchor",
			file: everyone + "Disallow: /a*$", blocked: []string{"/a", "/ab"}, allowed: []string{"/b"},
		},
		{
			name: "runs of wildcards",
			file: everyone + "Disallow: /a***b**$", blocked: []string{"/ab", "/axbx"}, allowed: []string{"/a"},
		},
		{
			name: "the last place counts for an anchor",
			file: everyone + "Disallow: /*ab$", blocked: []string{"/abab", "/ab/ab"}, allowed: []string{"/abac"},
		},
		{
			name: "no overlap",
			file: everyone + "Disallow: /aba*aba$\nDisallow: /x*ab*bc", blocked: []string{"/abaaba", "/xabbc"},
			allowed: []string{"/ababa", "/aba", "/xabc"},
		},
		{
			name: "only the root",
			file: everyone + "Disallow: /\nAllow: /$", blocked: []string{"/a", "/?"}, allowed: []string{"/", ""},
		},
		{
			name: "query of the root",
			file: everyone + "Disallow: /?", blocked: []string{"/?", "/?a"}, allowed: []string{"/", "/a?"},
		},

		// Rules.
		{name: "empty Disallow", file: everyone + "Disallow:\nDisallow: # nothing\n", allowed: []string{"/", "/a"}},
		{name: "empty Allow", file: everyone + "Allow:\nDisallow: /a", blocked: []string{"/a"}},
		{
			name: "case of a path",
			file: everyone + "Disallow: /Private", blocked: []string{"/Private"}, allowed: []string{"/private"},
		},
		{
			name: "prefix, not segment",
			file: everyone + "Disallow: /fish", blocked: []string{"/fish", "/fish.html", "/fishheads/"},
			allowed: []string{"/catfish"},
		},
		{
			name: "slash at the end",
			file: everyone + "Disallow: /fish/", blocked: []string{"/fish/", "/fish/?a"},
			allowed: []string{"/fish", "/fish.html"},
		},
		{
			name:    "no slash in front",
			file:    everyone + "Disallow: private/\nDisallow: ?q=\nAllow: private/x",
			blocked: []string{"/private/", "/?q=1"}, allowed: []string{"/private/x", "/a/private/"},
		},
		{name: "only an anchor", file: everyone + "Disallow: $", blocked: []string{"/"}, allowed: []string{"/a"}},
		{name: "a URL is no path", file: everyone + "Disallow: http://site.test/a", allowed: []string{"/a", "/"}},
		{
			name: "colons in a value",
			file: everyone + "Disallow: /a:b", blocked: []string{"/a:b"}, allowed: []string{"/a"},
		},
		{
			name: "order does not matter",
			file: everyone + "Disallow: /a\nAllow: /a/b\nDisallow: /a/b/c", blocked: []string{"/a", "/a/b/c"},
			allowed: []string{"/a/b"},
		},

		// Lines.
		{name: "white space", file: " \tUser-agent \t:\t*  \n\t Disallow\t : \t /a \t\n", blocked: []string{"/a"}},
		{
			name: "no white space",
			file: "user-agent:*\ndisallow:/a", blocked: []string{"/a"}, allowed: []string{"/b"},
		},
		{
			name: "no-break space",
			file: "User-agent:\u00a0*\nDisallow:\u00a0/a\u00a0\n", blocked: []string{"/a", "/ab"},
		},
		{name: "upper case", file: "USER-AGENT: *\nDISALLOW: /a", blocked: []string{"/a"}},
		{
			name:    "comments",
			file:    "# x\nUser-agent: * # all\n#Disallow: /c\nDisallow: /a#b\nDisallow: /d # e",
			blocked: []string{"/a", "/d"}, allowed: []string{"/c"},
		},
		{name: "commented agent", file: "#User-agent: *\nDisallow: /", allowed: []string{"/"}},
		{
			name: "no colon",
			file: "User-agent *\nDisallow /a\nDisallow /b /c\nAllow\t/a/b", blocked: []string{"/a"},
			allowed: []string{"/b", "/a/b"},
		},
		{
			name:    "misspelled Disallow",
			file:    everyone + "Disalow: /a\nDissallow: /b\nDissalow: /c\nDiasllow: /d\nDisallaw: /e",
			blocked: []string{"/a", "/b", "/c", "/d", "/e"},
		},
		{
			name: "misspelled User-agent",
			file: "Useragent: *\nDisallow: /a\nUser agent: examplebot\nDisallow: /b", blocked: []string{"/b"},
			allowed: []string{"/a"},
		},
		{
			name: "misspelled Allow does not count",
			file: everyone + "Disallow: /\nAlow: /a\nAllows: /a", blocked: []string{"/a"},
		},
		{
			name:    "longer names are other names",
			file:    everyone + "Disallowed: /a\nDisallow-x: /b\nxDisallow: /c",
			allowed: []string{"/a", "/b", "/c"},
		},
		{
			name: "mark inside, of files glued together",
			file: "User-agent: a\nDisallow: /a\n\uFEFFUser-agent: *\nDisallow: /b", blocked: []string{"/b"},
			allowed: []string{"/a"},
		},
		{name: "two marks", file: "\uFEFF\uFEFFUser-agent: *\nDisallow: /b", blocked: []string{"/b"}},
		{name: "empty file", allowed: []string{"/", ""}},
		{name: "only a mark", file: "\xFF\xFE", allowed: []string{"/"}},
		{name: "binary", file: "\x1f\x8b\x08\x00\x00\xff\xfe: /\n:\n: /\n\x00", allowed: []string{"/"}},

		// Agents.
		{
			name: "only our group",
			file: everyone + "Disallow: /b\nUser-agent: examplebot\nDisallow: /a", blocked: []string{"/a"},
			allowed: []string{"/b"},
		},
		{
			name: "our group is empty",
			file: "User-agent: examplebot\nDisallow:\n\nUser-agent: *\nDisallow: /", allowed: []string{"/"},
		},
		{
			name: "our group is at the end",
			file: everyone + "Disallow: /\nUser-agent: examplebot", allowed: []string{"/"},
		},
		{
			name: "our group has a delay only",
			file: everyone + "Disallow: /\nUser-agent: examplebot\nCrawl-delay: 1", allowed: []string{"/"},
		},
		{
			name:    "named with everyone",
			file:    "User-agent: *\nUser-agent: examplebot\nDisallow: /a\nUser-agent: *\nDisallow: /b",
			blocked: []string{"/a"}, allowed: []string{"/b"},
		},
		{name: "version in a group", file: "User-agent: ExampleBot/1.2 (x)\nDisallow: /a", blocked: []string{"/a"}},
		{
			name: "words behind our name",
			file: "User-agent: ExampleBot and friends\nDisallow: /a", blocked: []string{"/a"},
		},
		{name: "words behind a star", file: "User-agent: * all\nDisallow: /a", blocked: []string{"/a"}},
		{name: "star in front", file: "User-agent: *bot\nDisallow: /", allowed: []string{"/a"}},
		{name: "nobody", file: "User-agent:\nDisallow: /", allowed: []string{"/a"}},
		{
			name: "product with a version", product: " ExampleBot/2.0",
			file: "User-agent: examplebot\nDisallow: /", blocked: []string{"/a"},
		},
		{
			name: "hyphen and underscore", product: "my_bot-x",
			file: "User-agent: My_Bot-X\nDisallow: /", blocked: []string{"/a"},
		},
		{
			name: "no product", product: "/",
			file: "User-agent: /\nDisallow: /a\nUser-agent: *\nDisallow: /b", blocked: []string{"/b"},
			allowed: []string{"/a"},
		},
		{
			name:    "blank lines everywhere",
			file:    "\n\nUser-agent: a\n\nUser-agent: examplebot\n\n\nDisallow: /a\n\nDisallow: /b\n\n",
			blocked: []string{"/a", "/b"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			product := tt.product
			if product == "" {
				product = "examplebot"
			}
			r := Parse([]byte(tt.file), product)
			for _, path := range tt.blocked {
				if ok, rule := r.Allowed(path); ok {
					t.Errorf("%q is allowed by %q", path, rule)
				}
			}
			for _, path := range tt.allowed {
				if ok, rule := r.Allowed(path); !ok {
					t.Errorf("%q is blocked by %q", path, rule)
				}
			}
		})
	}
}
