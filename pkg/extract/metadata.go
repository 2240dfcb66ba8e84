package extract

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"example.com/trawl/pkg/crawl"
)

// Bounds of the metadata of a page. What is beyond them is left out, and counted.
const (
	maxTitleBytes    = 1024
	maxValueBytes    = 4096 // of a description, or of one value of a property
	maxNameBytes     = 100  // of the name of a property
	maxLanguageBytes = 35   // RFC 5646 section 4.4.1
	maxProperties    = 100  // of OpenGraph and Twitter, each on its own
	maxPropertyVals  = 50   // of one property
	maxAlternates    = 200
	maxFeeds         = 20
	maxJSONLD        = 20       // scripts
	maxJSONLDBytes   = 64 << 10 // of one script, compact
	maxMetadataBytes = 512 << 10
)

// metaReader gathers the metadata of a page.
type metaReader struct {
	d    *Document
	m    crawl.Metadata
	size int // bytes of it
	cut  int // values left out for a bound

	// Candidates, the best first: see [metaReader.finish].
	title       string
	named       map[string]string // the first value of each meta name, property and itemprop that counts
	ld          ldFacts
	icon, apple string
	timePubdate string
}

// metadata returns what the page says of itself, and how many values were left out for a bound.
func (d *Document) metadata() (*crawl.Metadata, int) {
	r := &metaReader{d: d, named: map[string]string{}}
	d.visit(r.element)
	r.finish()
	return &r.m, r.cut
}

// take counts a value against the bounds, and cuts it to its own. It reports false for one that
// has no room.
func (r *metaReader) take(s string, most int) (string, bool) {
	if r.size+min(len(s), most) > maxMetadataBytes {
		r.cut++
		return "", false
	}
	line := oneLine(s, most)
	if len(line) >= most-3 && len(s) > most {
		r.cut++
	}
	r.size += len(line)
	return line, line != ""
}

func (r *metaReader) element(n *html.Node) {
	if n.Namespace != "" {
		return
	}
	switch n.DataAtom {
	case atom.Html:
		if r.m.Language == "" {
			r.m.Language = languageOf(n)
		}
	case atom.Title:
		if r.title == "" {
			r.title, _ = lineOf(n, maxTitleBytes)
		}
	case atom.Meta:
		r.meta(n)
	case atom.Link:
		r.link(n)
	case atom.Script:
		r.script(n)
	case atom.Time:
		r.time(n)
	}
	if prop := attrOf(n, "itemprop"); prop != "" && n.DataAtom != atom.Meta {
		r.itemprop(n, prop)
	}
}

func languageOf(n *html.Node) string {
	lang := attrOf(n, "lang")
	if lang == "" {
		lang = attrOf(n, "xml:lang")
	}
	return languageTag(lang)
}

// languageTag returns s when it can be a language tag.
func languageTag(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxLanguageBytes {
		return ""
	}
	for _, c := range []byte(s) {
		if c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return ""
		}
	}
	return s
}

// wantedNames are the meta names and properties of which the first value is kept.
var wantedNames = map[string]bool{}

func init() {
	for _, list := range [][]string{
		titleNames, descriptionNames, authorNames, siteNames, imageNames, publishedNames, modifiedNames,
	} {
		for _, name := range list {
			wantedNames[name] = true
		}
	}
}

// The names of meta elements that say each thing, the best first.
var (
	titleNames       = []string{"og:title", "twitter:title", "dc.title", "dcterms.title"}
	descriptionNames = []string{
		"description", "og:description", "twitter:description", "dc.description", "dcterms.description",
	}
	authorNames = []string{
		"author", "article:author", "dc.creator", "dcterms.creator", "sailthru.author", "parsely-author", "byl",
		"citation_author", "twitter:creator",
	}
	siteNames      = []string{"og:site_name", "application-name", "apple-mobile-web-app-title"}
	imageNames     = []string{"og:image:secure_url", "og:image", "og:image:url", "twitter:image", "twitter:image:src"}
	publishedNames = []string{
		"article:published_time", "og:article:published_time", "datepublished", "dc.date.issued", "dcterms.issued",
		"dcterms.created", "dc.date", "dcterms.date", "citation_publication_date", "citation_date", "parsely-pub-date",
		"sailthru.date", "pubdate", "publishdate", "publish-date", "publish_date", "publication_date", "date",
	}
	modifiedNames = []string{
		"article:modified_time", "og:article:modified_time", "datemodified", "og:updated_time", "dcterms.modified",
		"dc.date.modified", "last-modified", "lastmod", "revised",
	}
)

func (r *metaReader) meta(n *html.Node) {
	content := attrOf(n, "content")
	if content == "" {
		return
	}
	for _, attr := range []string{"property", "name", "itemprop"} {
		name := attrOf(n, attr)
		if name == "" || len(name) > 4*maxNameBytes {
			continue
		}
		for _, name := range strings.Fields(strings.ToLower(name)) {
			r.property(name, content)
		}
	}
}

func (r *metaReader) property(name, content string) {
	if wantedNames[name] && r.named[name] == "" {
		r.named[name] = oneLine(content, maxValueBytes)
	}
	if rest, ok := strings.CutPrefix(name, "og:"); ok {
		r.m.OpenGraph = r.add(r.m.OpenGraph, rest, content)
	}
	if rest, ok := strings.CutPrefix(name, "twitter:"); ok {
		r.m.Twitter = r.add(r.m.Twitter, rest, content)
	}
}

// addresses are the properties of OpenGraph and Twitter whose value is an address.
var addresses = map[string]bool{
	"url": true, "see_also": true, "player": true, "player:stream": true, "image": true, "image:src": true, "image:url": true,
	"image:secure_url": true, "video": true, "video:url": true, "video:secure_url": true, "audio": true, "audio:url": true,
	"audio:secure_url": true,
}

// add adds a value to a property. Values that are there twice, as some templates write them, once
// as name and once as property, count once in a row.
func (r *metaReader) add(to map[string][]string, name, content string) map[string][]string {
	if name == "" || len(name) > maxNameBytes {
		return to
	}
	values, ok := to[name]
	if !ok && len(to) >= maxProperties || len(values) >= maxPropertyVals {
		r.cut++
		return to
	}
	if addresses[name] {
		// Of a property whose value is an address, what is none says nothing.
		u, ok := r.d.resolve(content)
		if !ok {
			return to
		}
		content = u.String()
	}
	value, ok := r.take(content, maxValueBytes)
	if !ok || len(values) > 0 && values[len(values)-1] == value {
		return to
	}
	if to == nil {
		to = map[string][]string{}
	}
	to[name] = append(values, value)
	return to
}

func (r *metaReader) link(n *html.Node) {
	href := attrOf(n, "href")
	if strings.TrimSpace(href) == "" {
		return
	}
	rel := strings.Fields(strings.ToLower(attrOf(n, "rel")))
	if len(rel) > 10 {
		rel = rel[:10]
	}
	alternate := false
	for _, token := range rel {
		switch token {
		case "canonical":
			if r.m.Canonical == "" {
				r.m.Canonical = r.address(href)
			}
		case "icon":
			if r.icon == "" {
				r.icon = r.address(href)
			}
		case "apple-touch-icon", "apple-touch-icon-precomposed":
			if r.apple == "" {
				r.apple = r.address(href)
			}
		case "alternate":
			alternate = true
		}
	}
	if alternate {
		r.alternate(n, href)
	}
}

// address returns the http URL that an address on the page means; "" where it means none.
func (r *metaReader) address(href string) string {
	u, ok := r.d.resolve(href)
	if !ok {
		return ""
	}
	s := u.String()
	if r.size+len(s) > maxMetadataBytes {
		r.cut++
		return ""
	}
	r.size += len(s)
	return s
}

func (r *metaReader) alternate(n *html.Node, href string) {
	media := oneLine(strings.ToLower(attrOf(n, "type")), maxNameBytes)
	media, _, _ = strings.Cut(media, ";")
	switch lang := languageTag(attrOf(n, "hreflang")); {
	case isFeed(media):
		if len(r.m.Feeds) >= maxFeeds {
			r.cut++
		} else if u := r.address(href); u != "" {
			title, _ := r.take(attrOf(n, "title"), maxLinkTitle)
			r.m.Feeds = append(r.m.Feeds, crawl.Feed{URL: u, Type: strings.TrimSpace(media), Title: title})
		}
	case lang != "":
		if len(r.m.Alternates) >= maxAlternates {
			r.cut++
		} else if u := r.address(href); u != "" {
			r.m.Alternates = append(r.m.Alternates, crawl.Alternate{Language: lang, URL: u})
		}
	}
}

// maxLinkTitle bounds the title of a feed.
const maxLinkTitle = 300

func isFeed(media string) bool {
	switch strings.TrimSpace(media) {
	case "application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml":
		return true
	}
	return false
}

// finish chooses among the candidates.
func (r *metaReader) finish() {
	m := &r.m
	m.Title = r.title
	if m.Title == "" {
		m.Title = cutLine(r.first(titleNames), maxTitleBytes)
	}
	m.Description = r.first(descriptionNames)
	m.Author = r.author()
	m.SiteName = r.first(siteNames)
	if m.SiteName == "" {
		m.SiteName = r.ld.site
	}
	if image := r.first(imageNames); image != "" {
		m.Image = r.address(image)
	}
	if m.Image == "" && r.ld.image != "" {
		m.Image = r.address(r.ld.image)
	}
	m.Icon = r.icon
	if m.Icon == "" {
		m.Icon = r.apple
	}
	r.finishTimes()
}

func (r *metaReader) first(names []string) string {
	for _, name := range names {
		if v := r.named[name]; v != "" {
			return v
		}
	}
	return ""
}

// author is the name of a person where the page has one: article:author is often the address of a
// profile.
func (r *metaReader) author() string {
	for _, name := range authorNames {
		if v := r.named[name]; v != "" && !strings.HasPrefix(v, "http://") && !strings.HasPrefix(v, "https://") {
			return v
		}
	}
	return r.ld.author
}
