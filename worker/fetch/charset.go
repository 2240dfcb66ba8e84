package fetch

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
)

const utf8Name = "utf-8"

// prescanBytes is how far a meta element may lie from the start of the page to
// count (HTML section 13.2.3.2).
const prescanBytes = 1024

var replacementChar = []byte("\uFFFD")

// decode returns body as valid UTF-8, without a byte order mark, and notes the
// charset and whether bytes were lost. The charset is, in this order, that of
// the byte order mark, the label of the header, the page's own declaration;
// else UTF-8 when the whole body is valid UTF-8, and windows-1252 when not. A
// label that is not known counts as none. The result may be body itself.
func (p *parser) decode(body []byte, label string) []byte {
	switch {
	case bytes.HasPrefix(body, utf8BOM):
		p.charset, body = utf8Name, body[len(utf8BOM):]
	case bytes.HasPrefix(body, []byte("\xfe\xff")):
		p.encoding, p.charset = charset.Lookup("utf-16be")
		body = body[2:]
	case bytes.HasPrefix(body, []byte("\xff\xfe")):
		p.encoding, p.charset = charset.Lookup("utf-16le")
		body = body[2:]
	default:
		if label != "" {
			p.encoding, p.charset = charset.Lookup(label)
		}
		if p.charset == "" {
			p.encoding, p.charset = declared(body[:min(len(body), prescanBytes)])
		}
		if p.charset == "" {
			if utf8.Valid(body) {
				p.charset = utf8Name
				return body
			}
			p.encoding, p.charset = charset.Lookup("windows-1252")
		}
	}
	if p.charset == utf8Name {
		p.encoding = nil
		if !utf8.Valid(body) {
			p.decodingErrors = true
			body = bytes.ToValidUTF8(body, replacementChar)
		}
		return body
	}
	text, err := p.encoding.NewDecoder().Bytes(body)
	if err != nil {
		// Decoders replace what they cannot read; an error is one of the transformer.
		p.decodingErrors = true
		text = append(text, replacementChar...)
	}
	if bytes.Contains(text, replacementChar) {
		p.decodingErrors = true
	}
	// A decoder of UTF-16 may have left a second mark, and lone surrogates.
	return bytes.TrimPrefix(bytes.ToValidUTF8(text, replacementChar), utf8BOM)
}

// declared returns the encoding that the start of a page declares in a meta
// element ("prescan a byte stream to determine its encoding") or, failing that,
// in an XML declaration; "" when there is none that is known.
func declared(head []byte) (encoding.Encoding, string) {
	// Most pages name their charset in the header; of the others, most have no
	// meta element here. Searching bytes is far cheaper than tokens.
	if containsFold(head, "charset") {
		z := html.NewTokenizer(bytes.NewReader(head))
		for tt := z.Next(); tt != html.ErrorToken; tt = z.Next() {
			if tt != html.StartTagToken && tt != html.SelfClosingTagToken {
				continue
			}
			z.NextIsNotRawText() // the prescan knows comments and tags only
			name, more := z.TagName()
			if string(name) != "meta" || !more {
				continue
			}
			if e, name := metaCharset(z); name != "" {
				return e, name
			}
		}
	}
	if bytes.HasPrefix(head, []byte("<?xml")) {
		decl, _, _ := bytes.Cut(head, []byte("?>"))
		if _, v, ok := bytes.Cut(decl, []byte("encoding")); ok {
			v = bytes.TrimLeft(v, " \t\r\n=")
			if len(v) > 1 && (v[0] == '"' || v[0] == '\'') {
				if v, _, ok = bytes.Cut(v[1:], v[:1]); ok {
					return asciiCompatible(string(v))
				}
			}
		}
	}
	return nil, ""
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
	e, name := charset.Lookup(label)
	switch {
	case strings.HasPrefix(name, "utf-16"):
		return charset.Lookup(utf8Name)
	case name == "x-user-defined":
		return charset.Lookup("windows-1252")
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
