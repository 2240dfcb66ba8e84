package sitemap

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

const (
	// A value holds a URL. The crawler takes none over 8 KiB, and one that is
	// escaped is longer.
	maxValueBytes = 16 << 10
	// Beyond this the attributes of a tag are not looked at.
	maxTagBytes = 16 << 10
	// Names beyond this are the same name.
	maxNameBytes = 128

	blanks = " \t\r\n"
)

// token is what scanner.next stopped at.
type token uint8

const (
	startTag token = iota + 1
	endTag
)

// scanner splits markup into tags. Text is kept between begin and value only, so
// that what nobody asked for may have any size.
type scanner struct {
	in *bufio.Reader

	name  []byte // of the tag, in lower case and with its prefix
	attrs []byte // what follows the name; nil when it is too long
	empty bool   // the start tag is the end tag as well
	raw   []byte // what name and attrs point into

	keeping bool
	text    []byte
	decoded int  // so much of text has its references decoded
	over    bool // the value was longer than maxValueBytes
}

// next reads up to the next start or end tag. Comments, processing instructions
// and declarations are passed over.
func (s *scanner) next() (token, error) {
	for {
		if err := s.characters(); err != nil {
			return 0, err
		}
		b, err := s.in.ReadByte()
		if err != nil {
			return 0, err
		}
		switch {
		case b == '!':
			err = s.declaration()
		case b == '?':
			err = s.until("?>", false)
		case b == '/':
			return endTag, s.tag(false)
		case 'a' <= b|0x20 && b|0x20 <= 'z' || b == '_' || b >= utf8.RuneSelf:
			_ = s.in.UnreadByte() // of the byte that was just read
			return startTag, s.tag(true)
		default:
			_ = s.in.UnreadByte()
			s.keep([]byte{'<'})
		}
		if err != nil {
			return 0, err
		}
	}
}

// characters reads up to a "<", and that too.
func (s *scanner) characters() error {
	for {
		chunk, err := s.in.ReadSlice('<')
		if err == nil {
			s.keep(chunk[:len(chunk)-1])
			return nil
		}
		s.keep(chunk)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// tag reads a tag behind its "<" or "</". A ">" in quotes does not end it.
func (s *scanner) tag(quotes bool) error {
	s.raw, s.empty = s.raw[:0], false
	var quote byte
	long := false
	for {
		chunk, err := s.in.ReadSlice('>')
		if quotes {
			quote = openQuote(chunk, quote)
		}
		end := err == nil && quote == 0
		if end {
			chunk = chunk[:len(chunk)-1]
		}
		if len(chunk) > 0 {
			s.empty = chunk[len(chunk)-1] == '/'
		}
		room := maxTagBytes - len(s.raw)
		long = long || len(chunk) > room
		s.raw = append(s.raw, chunk[:min(len(chunk), room)]...)
		if end {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	i := bytes.IndexAny(s.raw, blanks+"/")
	if i < 0 {
		i = len(s.raw)
	}
	s.name, s.attrs = s.raw[:min(i, maxNameBytes)], s.raw[i:]
	if long {
		s.attrs = nil
	}
	for i, b := range s.name {
		if 'A' <= b && b <= 'Z' {
			s.name[i] = b | 0x20
		}
	}
	return nil
}

// openQuote returns the quote that is open behind b when quote was before it; 0
// for none.
func openQuote(b []byte, quote byte) byte {
	for {
		i := bytes.IndexByte(b, quote)
		if quote == 0 {
			i = bytes.IndexAny(b, `"'`)
		}
		switch {
		case i < 0:
			return quote
		case quote == 0:
			quote = b[i]
		default:
			quote = 0
		}
		b = b[i+1:]
	}
}

// declaration reads what begins with "<!": a comment, a CDATA section, or a
// declaration, of which nothing is of interest.
func (s *scanner) declaration() error {
	switch {
	case s.take("--"):
		return s.until("-->", false)
	case s.take("[CDATA["):
		s.decodeText()
		err := s.until("]]>", true)
		s.decoded = len(s.text) // it holds no references
		return err
	}
	// A document type holds further declarations, and those hold quotes.
	var quote byte
	for depth := 1; depth > 0; {
		b, err := s.in.ReadByte()
		if err != nil {
			return err
		}
		switch {
		case quote != 0:
			if b == quote {
				quote = 0
			}
		case b == '"' || b == '\'':
			quote = b
		case b == '>':
			depth--
		case b == '<' && s.take("!--"): // an apostrophe in it is no quote
			if err := s.until("-->", false); err != nil {
				return err
			}
		case b == '<':
			depth++
		}
	}
	return nil
}

// take passes over prefix if it is next.
func (s *scanner) take(prefix string) bool {
	head, _ := s.in.Peek(len(prefix)) // an error comes again
	if string(head) != prefix {
		return false
	}
	_, _ = s.in.Discard(len(prefix))
	return true
}

// until reads up to end and that too. All but the last byte of end must be the
// same; so what was read of it stays good when one more of that byte follows.
func (s *scanner) until(end string, keep bool) error {
	for matched := 0; matched < len(end); {
		b, err := s.in.ReadByte()
		if err != nil {
			return err
		}
		if keep {
			s.keep([]byte{b})
		}
		if b == end[matched] {
			matched++
		} else if b != end[0] {
			matched = 0
		}
	}
	if keep && s.keeping && !s.over {
		s.text = s.text[:len(s.text)-len(end)]
	}
	return nil
}

// begin keeps the text from here on.
func (s *scanner) begin() {
	s.keeping, s.text, s.decoded, s.over = true, s.text[:0], 0, false
}

func (s *scanner) keep(b []byte) {
	switch {
	case !s.keeping || s.over:
	case len(s.text)+len(b) > maxValueBytes:
		s.over = true
	default:
		s.text = append(s.text, b...)
	}
}

// value ends what begin began and returns it; "" when it was too long.
func (s *scanner) value() string {
	s.keeping = false
	if s.over {
		return ""
	}
	s.decodeText()
	return clean(s.text)
}

func (s *scanner) decodeText() {
	s.text = append(s.text[:s.decoded], unescape(s.text[s.decoded:])...)
	s.decoded = len(s.text)
}

// attr returns an attribute of the start tag, which has no prefix.
func (s *scanner) attr(name string) (string, bool) {
	return attribute(s.attrs, name)
}

// attribute returns the first attribute with that name, in any letter case.
func attribute(attrs []byte, name string) (string, bool) {
	for {
		attrs = bytes.TrimLeft(attrs, blanks+"/")
		if len(attrs) == 0 {
			return "", false
		}
		i := bytes.IndexAny(attrs, blanks+"=")
		if i < 0 {
			i = len(attrs)
		}
		key := attrs[:i]
		attrs = bytes.TrimLeft(attrs[i:], blanks)
		if len(attrs) == 0 || attrs[0] != '=' {
			continue
		}
		var val []byte
		attrs = bytes.TrimLeft(attrs[1:], blanks)
		if len(attrs) > 0 && (attrs[0] == '"' || attrs[0] == '\'') {
			val, attrs, _ = bytes.Cut(attrs[1:], attrs[:1])
		} else if i = bytes.IndexAny(attrs, blanks); i >= 0 {
			val, attrs = attrs[:i], attrs[i:]
		} else {
			val, attrs = attrs, nil
		}
		if strings.EqualFold(string(key), name) {
			return clean(unescape(bytes.Clone(val))), true
		}
	}
}

// unescape decodes references in place; a reference is never shorter than what it
// stands for.
func unescape(b []byte) []byte {
	r := bytes.IndexByte(b, '&')
	if r < 0 {
		return b
	}
	w := r
	for r < len(b) {
		if c, n := reference(b[r:]); n > 0 {
			w += utf8.EncodeRune(b[w:], c)
			r += n
			continue
		}
		b[w] = b[r]
		w, r = w+1, r+1
	}
	return b[:w]
}

// maxReference is the length of "&#x0010FFFF;", that is, with leading zeros.
const maxReference = 12

// reference returns the character that b begins with a reference to, and the
// length of that; 0 when it does not. Letter case does not matter, as the tags of
// those who write &AMP; have none either.
func reference(b []byte) (rune, int) {
	if b[0] != '&' {
		return 0, 0
	}
	end := bytes.IndexByte(b[:min(len(b), maxReference)], ';')
	if end < 2 {
		return 0, 0
	}
	name := strings.ToLower(string(b[1:end]))
	switch name {
	case "amp":
		return '&', end + 1
	case "lt":
		return '<', end + 1
	case "gt":
		return '>', end + 1
	case "quot":
		return '"', end + 1
	case "apos":
		return '\'', end + 1
	}
	digits, numeric := strings.CutPrefix(name, "#")
	if !numeric {
		return 0, 0
	}
	base := 10
	if hex, ok := strings.CutPrefix(digits, "x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 31)
	if err != nil || n == 0 || !utf8.ValidRune(rune(n)) {
		return 0, 0
	}
	return rune(n), end + 1
}

// clean makes a value of b: valid UTF-8 without blanks around it and line breaks
// in it. No URL has a line break; who wrapped the line has indented it as well.
func clean(b []byte) string {
	if !utf8.Valid(b) {
		// The decoder maps every byte and never fails.
		b, _ = charmap.Windows1252.NewDecoder().Bytes(b)
	}
	b = bytes.TrimFunc(b, isBlank)
	if bytes.ContainsAny(b, "\r\n") {
		lines := bytes.FieldsFunc(b, func(r rune) bool { return r == '\r' || r == '\n' })
		for i := range lines {
			lines[i] = bytes.Trim(lines[i], " \t")
		}
		b = bytes.Join(lines, nil)
	}
	return string(b)
}

// isBlank reports white space and the invisible marks that editors leave behind.
func isBlank(r rune) bool {
	return unicode.IsSpace(r) || r == '\uFEFF' || r == '\u200B'
}
