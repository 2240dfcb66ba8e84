package fetch

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/gabriel-vasile/mimetype"
)

// sniffBytes is the length of the resource header that is looked at, as in the
// MIME Sniffing standard ("read the resource header": 1445 bytes at most).
const sniffBytes = 1445

// mediaType extracts the type and the charset label from the Content-Type lines
// of an answer by the algorithm of the Fetch standard ("extract a MIME type"):
// the last valid one wins, whether in lines of their own or separated by commas.
// Both are lower-case; the type is empty when none is valid.
func mediaType(lines []string) (essence, charset string) {
	for _, line := range lines {
		for line != "" {
			var value string
			value, line = cutUnquoted(line, ',')
			head, params := cutUnquoted(value, ';')
			head = strings.ToLower(strings.Trim(head, httpSpace))
			if !validType(head) {
				continue
			}
			if head != essence {
				charset = ""
			}
			essence = head
			if c := charsetParam(params); c != "" {
				charset = c
			}
		}
	}
	return essence, charset
}

const httpSpace = " \t\r\n"

// cutUnquoted cuts s at the first sep outside of a quoted string.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// validType reports whether s is type/subtype (RFC 9110 section 8.3.1), and a
// type that says something. 127 bytes a part is the limit of RFC 6838.
func validType(s string) bool {
	major, minor, ok := strings.Cut(s, "/")
	return ok && isToken(major) && isToken(minor) && s != "*/*"
}

func isToken(s string) bool {
	if s == "" || len(s) > 127 {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return true
}

// charsetParam returns the first charset parameter that is not empty.
func charsetParam(params string) string {
	for params != "" {
		var p string
		p, params = cutUnquoted(params, ';')
		name, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.Trim(name, httpSpace), "charset") {
			// Single quotes are no quotes in HTTP, but servers think so.
			if v := strings.ToLower(strings.Trim(value, httpSpace+`"'`)); v != "" {
				return v
			}
		}
	}
	return ""
}

var utf8BOM = []byte("\xef\xbb\xbf")

// sniff looks at the first bytes of a body that says it is HTML (labelled) or
// says nothing. It reports whether to parse it as HTML, and its type.
//
// A label is believed unless the bytes are another format for certain: a known
// signature, and bytes that no text has. Text may well begin with "BM" or "PK".
func sniff(b []byte, labelled bool) (kind string, html bool) {
	text := bytes.TrimLeft(bytes.TrimPrefix(b, utf8BOM), "\t\n\f\r ")
	markup := len(text) > 1 && text[0] == '<' && (isLetter(text[1]) || text[1] == '!')
	if len(text) == 0 {
		return "", true
	}
	if labelled && (markup || text[0] == '<') {
		return "text/html", true
	}
	if bytes.HasPrefix(text, []byte("--")) {
		text = afterPartHeader(text)
	}
	m := mimetype.Detect(text)
	kind, _, _ = strings.Cut(m.String(), ";")
	switch {
	case m.Is("application/pdf") && bytes.HasPrefix(text, []byte("%PDF-")):
		return kind, false
	case m.Is("application/postscript"):
		return kind, false
	case binary(text) && !m.Is("application/octet-stream") && !textual(m):
		return kind, false
	case labelled && noise(text):
		return "application/octet-stream", false
	case labelled:
		return "text/html", true
	case binary(text) && !utf16BOM(b):
		return kind, false
	case m.Is("text/html"), m.Is("application/xhtml+xml"):
		return kind, true
	case markup && (!textual(m) || m.Is("text/plain")):
		return "text/html", true
	case textual(m):
		return kind, false
	}
	return "text/plain", false
}

// afterPartHeader skips a boundary line and part header that a broken upload
// left before the document, when a blank line ends them.
func afterPartHeader(b []byte) []byte {
	for _, blank := range []string{"\r\n\r\n", "\n\n"} {
		if _, rest, ok := bytes.Cut(b, []byte(blank)); ok && len(rest) > 0 {
			return rest
		}
	}
	return b
}

// textual reports whether m is text/plain or one of its special cases.
func textual(m *mimetype.MIME) bool {
	for ; m != nil; m = m.Parent() {
		if m.Is("text/plain") {
			return true
		}
	}
	return false
}

// binary reports whether b holds a binary data byte of the MIME Sniffing
// standard (section 3).
func binary(b []byte) bool {
	for _, c := range b {
		if c <= 0x08 || c == 0x0b || 0x0e <= c && c <= 0x1a || 0x1c <= c && c <= 0x1f {
			return true
		}
	}
	return false
}

// noise reports whether b is neither text nor a format that is known: a body whose
// Content-Encoding was lost, say. No charset has a control byte among 32, leaving aside NUL
// (UTF-16), ESC, SO and SI (ISO-2022), and a valid UTF-8 text is none.
func noise(b []byte) bool {
	n := 0
	for _, c := range b {
		if c != 0 && binary([]byte{c}) && c != 0x0e && c != 0x0f {
			n++
		}
	}
	return n > 0 && n*32 >= len(b) && !utf8.Valid(b)
}

func utf16BOM(b []byte) bool {
	return bytes.HasPrefix(b, []byte("\xfe\xff")) || bytes.HasPrefix(b, []byte("\xff\xfe"))
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
