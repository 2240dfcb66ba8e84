package fetch

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/simplifiedchinese"
)

const (
	utf8Name    = "utf-8"
	defaultName = "windows-1252" // what HTML section 13.2.3.2 suggests for most locales
)

// CharsetFrom says how the charset of a page was found.
type CharsetFrom string

// The ways to find a charset, in the order in which they are tried. A label that
// is not known counts as none.
const (
	CharsetBOM      CharsetFrom = "bom"      // a byte order mark
	CharsetHeader   CharsetFrom = "header"   // the parameter of Content-Type
	CharsetMeta     CharsetFrom = "meta"     // a meta element
	CharsetXML      CharsetFrom = "xml"      // an XML declaration
	CharsetUTF8     CharsetFrom = "utf8"     // undeclared, and the whole page is valid UTF-8
	CharsetDetected CharsetFrom = "detected" // undeclared, and the letters tell
	CharsetDefault  CharsetFrom = "default"  // undeclared, and nothing tells: windows-1252
)

const (
	// prescanBytes is how far a meta element may lie from the start of the page to
	// count anywhere (HTML section 13.2.3.2).
	prescanBytes = 1024
	// headBytes is how far it may lie when nothing but the content of a head is
	// before it. Browsers read on so, without a bound; scripts and styles in front
	// of a late meta element rarely are longer.
	headBytes = 16 << 10
)

var replacementChar = []byte("\uFFFD")

// lookup returns the encoding of a label and its name in the Encoding standard;
// nil and "" for a label that is not known. Unlike charset.Lookup it does not wrap
// the encoding in HTML escapes, which have no place in a URL.
func lookup(label string) (encoding.Encoding, string) {
	e, err := htmlindex.Get(label)
	if err != nil {
		return nil, ""
	}
	name, err := htmlindex.Name(e)
	if err != nil {
		return nil, ""
	}
	return e, name
}

// decode returns body as valid UTF-8, without a byte order mark, and notes the
// charset, how it was found, and whether bytes were lost. The result may be body
// itself.
func (p *parser) decode(body []byte, label string) []byte {
	body = p.identify(body, label)
	if p.charset == utf8Name {
		p.encoding = nil
		if !utf8.Valid(body) {
			p.decodingErrors = true
			body = bytes.ToValidUTF8(body, replacementChar)
		}
		return body
	}
	text, err := decoderOf(p.encoding).Bytes(body)
	if err != nil {
		// Decoders replace what they cannot read; an error is one of the transformer.
		p.decodingErrors = true
		text = append(text, replacementChar...)
	}
	if bytes.Contains(text, replacementChar) {
		p.decodingErrors = true
	}
	// A decoder of UTF-16 may have left a second mark, and lone surrogates.
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, replacementChar)
	}
	return bytes.TrimPrefix(text, utf8BOM)
}

// identify finds the charset of a page and returns body without its byte order
// mark.
func (p *parser) identify(body []byte, label string) []byte {
	use := func(from CharsetFrom, e encoding.Encoding, name string) bool {
		if name != "" {
			p.encoding, p.charset, p.charsetFrom = e, name, from
		}
		return name != ""
	}
	for _, mark := range []struct{ bytes, label string }{
		{"\xef\xbb\xbf", utf8Name}, {"\xfe\xff", "utf-16be"}, {"\xff\xfe", "utf-16le"},
	} {
		if rest, ok := bytes.CutPrefix(body, []byte(mark.bytes)); ok {
			e, name := lookup(mark.label)
			use(CharsetBOM, e, name)
			return rest
		}
	}
	if e, name := lookup(label); use(CharsetHeader, e, name) {
		return body
	}
	if !p.plain {
		if e, name := declared(body); use(CharsetMeta, e, name) {
			return body
		}
	}
	if e, name := xmlDeclared(body[:min(len(body), prescanBytes)]); use(CharsetXML, e, name) {
		return body
	}
	if utf8.Valid(body) {
		use(CharsetUTF8, nil, utf8Name)
		return body
	}
	if e, name := detect(body); use(CharsetDetected, e, name) {
		return body
	}
	e, name := lookup(defaultName)
	use(CharsetDefault, e, name)
	return body
}

// decoderOf returns what decodes e. The decoder of GBK is that of GB18030 (Encoding
// section 10.1.1), while a query is encoded in GBK proper.
func decoderOf(e encoding.Encoding) *encoding.Decoder {
	if e == simplifiedchinese.GBK {
		e = simplifiedchinese.GB18030
	}
	return e.NewDecoder()
}

// declared returns the encoding that a meta element of the page declares: one in
// the first bytes, wherever it stands there ("prescan a byte stream to determine
// its encoding"), else one further on in the head. The name is "" when there is
// none that is known.
func declared(body []byte) (encoding.Encoding, string) {
	// Most pages name their charset in the header; of the others, most have no
	// meta element here. Searching bytes is far cheaper than tokens.
	first := body[:min(len(body), prescanBytes)]
	if containsFold(first, "charset") {
		if e, name := prescan(first, false); name != "" {
			return e, name
		}
	}
	if len(body) <= prescanBytes {
		return nil, ""
	}
	// A label that the border cuts must not be half read.
	head := body[:min(len(body), headBytes)]
	if containsFold(head[prescanBytes-len("<meta charset"):], "charset") {
		return prescan(head, true)
	}
	return nil, ""
}

// prescan looks for a meta element that declares a charset. Within the head it
// stops where that ends, and passes over scripts and styles as a parser does; else
// it knows comments and tags only.
func prescan(b []byte, withinHead bool) (encoding.Encoding, string) {
	z := html.NewTokenizer(bytes.NewReader(b))
	for tt := z.Next(); tt != html.ErrorToken; tt = z.Next() {
		if tt == html.EndTagToken && withinHead {
			if name, _ := z.TagName(); string(name) == "head" {
				return nil, ""
			}
		}
		if tt != html.StartTagToken && tt != html.SelfClosingTagToken {
			continue
		}
		if !withinHead {
			z.NextIsNotRawText()
		}
		name, more := z.TagName()
		if withinHead && !ofHead[string(name)] {
			return nil, ""
		}
		if string(name) != "meta" || !more {
			continue
		}
		if e, name := metaCharset(z); name != "" {
			return e, name
		}
	}
	return nil, ""
}

// ofHead has the elements that leave a parser in the head.
var ofHead = set(
	"html",
	"head",
	"base",
	"basefont",
	"bgsound",
	"link",
	"meta",
	"noframes",
	"noscript",
	"script",
	"style",
	"template",
	"title",
)

// xmlDeclared returns the encoding of an XML declaration at the start of a page.
func xmlDeclared(head []byte) (encoding.Encoding, string) {
	if !bytes.HasPrefix(head, []byte("<?xml")) {
		return nil, ""
	}
	decl, _, _ := bytes.Cut(head, []byte("?>"))
	_, v, ok := bytes.Cut(decl, []byte("encoding"))
	if !ok {
		return nil, ""
	}
	v = bytes.TrimLeft(v, " \t\r\n=")
	if len(v) < 2 || v[0] != '"' && v[0] != '\'' {
		return nil, ""
	}
	v, _, ok = bytes.Cut(v[1:], v[:1])
	if !ok {
		return nil, ""
	}
	return asciiCompatible(string(v))
}

// metaCharset returns the encoding of the meta element that z stands at.
func metaCharset(z *html.Tokenizer) (encoding.Encoding, string) {
	var label, content string
	pragma, has := false, false
	for more := true; more; {
		var key, val []byte
		key, val, more = z.TagAttr()
		switch string(key) {
		case "charset":
			label, has = string(val), true
		case "http-equiv":
			pragma = strings.EqualFold(string(val), "content-type")
		case "content":
			content = string(val)
		}
	}
	if !has && pragma {
		label = contentCharset(content)
	}
	if label == "" {
		return nil, ""
	}
	return asciiCompatible(label)
}

// contentCharset extracts the charset from the content of a meta element (HTML
// section 2.5.5): it may follow anything, quoted or not.
func contentCharset(s string) string {
	lower := strings.ToLower(s)
	for {
		i := strings.Index(lower, "charset")
		if i < 0 {
			return ""
		}
		lower = strings.TrimLeft(lower[i+len("charset"):], htmlSpace)
		v, ok := strings.CutPrefix(lower, "=")
		if !ok {
			continue
		}
		v = strings.TrimLeft(v, htmlSpace)
		if v != "" && (v[0] == '"' || v[0] == '\'') {
			v, _, ok = strings.Cut(v[1:], v[:1])
			if !ok {
				return ""
			}
			return v
		}
		if i := strings.IndexAny(v, htmlSpace+";"); i >= 0 {
			v = v[:i]
		}
		return v
	}
}

// asciiCompatible looks up the label of a declaration that was read as ASCII. So
// it cannot be UTF-16: HTML makes it UTF-8, and x-user-defined windows-1252.
func asciiCompatible(label string) (encoding.Encoding, string) {
	e, name := lookup(label)
	switch {
	case strings.HasPrefix(name, "utf-16"):
		return lookup(utf8Name)
	case name == "x-user-defined":
		return lookup(defaultName)
	}
	return e, name
}

// containsFold reports whether b holds s, which is lower-case ASCII letters, in
// any case.
func containsFold(b []byte, s string) bool {
	for i := 0; i+len(s) <= len(b); i++ {
		if b[i]|0x20 == s[0] && strings.EqualFold(string(b[i:i+len(s)]), s) {
			return true
		}
	}
	return false
}
