package extract

import (
	"bytes"
	"encoding/json"
	"strings"

	"golang.org/x/net/html"
)

// ldFacts is what the JSON-LD of a page says that metadata has a name for.
type ldFacts struct {
	published, modified, author, site, image string
}

// maxLDDepth and maxLDValues bound what is looked through for facts.
const (
	maxLDDepth  = 8
	maxLDValues = 5000
)

// script takes a JSON-LD script. One that is no valid JSON is left out, for nothing can be done
// with it; so is one that is too long.
func (r *metaReader) script(n *html.Node) {
	media, _, _ := strings.Cut(attrOf(n, "type"), ";")
	if !strings.EqualFold(strings.TrimSpace(media), "application/ld+json") || n.FirstChild == nil {
		return
	}
	source := []byte(n.FirstChild.Data)
	if len(source) > 4*maxJSONLDBytes || len(r.m.JSONLD) >= maxJSONLD {
		r.cut++
		return
	}
	source = trimScript(source)
	if !json.Valid(source) {
		return
	}
	var compact bytes.Buffer
	if json.Compact(&compact, source) != nil {
		return
	}
	if compact.Len() > maxJSONLDBytes || r.size+compact.Len() > maxMetadataBytes {
		r.cut++
		return
	}
	r.size += compact.Len()
	r.m.JSONLD = append(r.m.JSONLD, bytes.Clone(compact.Bytes()))
	r.learn(compact.Bytes())
}

// trimScript removes what old templates write around a script: a comment or a CDATA section.
func trimScript(s []byte) []byte {
	s = bytes.TrimSpace(s)
	for _, wrap := range [][2]string{{"<!--", "-->"}, {"//<![CDATA[", "//]]>"}, {"<![CDATA[", "]]>"}} {
		if bytes.HasPrefix(s, []byte(wrap[0])) {
			s = bytes.TrimSuffix(bytes.TrimPrefix(s, []byte(wrap[0])), []byte(wrap[1]))
			s = bytes.TrimSpace(s)
		}
	}
	return bytes.TrimSpace(bytes.TrimSuffix(s, []byte(";")))
}

// learn looks for facts in a script. Those of the first script and of the outermost object count.
func (r *metaReader) learn(source []byte) {
	var v any
	if json.Unmarshal(source, &v) != nil {
		return
	}
	left := maxLDValues
	r.ld.learn(v, maxLDDepth, &left)
}

func (f *ldFacts) learn(v any, depth int, left *int) {
	if *left--; *left < 0 || depth == 0 {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			f.learn(e, depth-1, left)
		}
	case map[string]any:
		f.object(v)
		for _, key := range []string{"@graph", "mainEntity", "mainEntityOfPage", "itemListElement", "item"} {
			if e, ok := v[key]; ok {
				f.learn(e, depth-1, left)
			}
		}
	}
}

func (f *ldFacts) object(o map[string]any) {
	keep := func(to *string, v any) {
		if *to == "" {
			*to = oneLine(nameOf(v), maxValueBytes)
		}
	}
	keep(&f.published, o["datePublished"])
	if f.published == "" {
		keep(&f.published, o["datePosted"])
	}
	keep(&f.modified, o["dateModified"])
	keep(&f.author, o["author"])
	keep(&f.image, o["image"])
	switch o["@type"] {
	case "WebSite", "Organization", "NewsMediaOrganization":
		keep(&f.site, o["name"])
	}
	keep(&f.site, o["publisher"])
}

// nameOf returns the text of a value: of a string itself, of an object its name or URL, of a list
// the first.
func nameOf(v any) string {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		for _, key := range []string{"name", "url", "contentUrl"} {
			if s, ok := v[key].(string); ok {
				return s
			}
		}
	}
	return ""
}

// itemprop takes what microdata says.
func (r *metaReader) itemprop(n *html.Node, prop string) {
	if len(prop) > 4*maxNameBytes {
		return
	}
	for _, name := range strings.Fields(strings.ToLower(prop)) {
		if !wantedNames[name] || r.named[name] != "" {
			continue
		}
		for _, attr := range []string{"content", "datetime"} {
			if v := oneLine(attrOf(n, attr), maxValueBytes); v != "" {
				r.named[name] = v
				break
			}
		}
		if r.named[name] == "" {
			r.named[name], _ = lineOf(n, maxNameBytes)
		}
	}
}
