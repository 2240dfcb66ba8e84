package fetch

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"golang.org/x/net/html"
)

const (
	// A start tag beyond this reaches the tokenizer without the attributes that nobody
	// asks for: the tokenizer keeps some hundred bytes of each, and five megabytes of
	// them would make 200 MB. Real tags are longer by one long value, not by thousands.
	giantTag = 32 << 10
	// firstRead is what the tokenizer is given at once; more only within a long token,
	// so that a giant tag is seen before all of it is handed over.
	firstRead = 4 << 10
)

// errGiantTag ends the reading of a tokenizer in the middle of a giant tag.
var errGiantTag = errors.New("fetch: the tag is too long for the tokenizer")

// ofInterest has the attributes that a parser looks at, of whatever element.
var ofInterest = set("href", "src", "rel", "lang", "xml:lang", "name", "http-equiv", "content")

// rawElements have content that is no markup.
var rawElements = set("iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp")

// source hands a page to a tokenizer, as far as that may have it.
type source struct {
	page  []byte
	given int  // bytes handed over
	token int  // where the token at hand begins
	raw   bool // the token at hand may be raw text: a "<" there begins no tag
}

// Read implements io.Reader. It fails with [errGiantTag] when the token at hand is a
// start tag of more than [giantTag].
func (s *source) Read(p []byte) (int, error) {
	if s.given == len(s.page) {
		return 0, io.EOF
	}
	// Twice as much each time, as the tokenizer's buffer grows: it copies what it has
	// of the token with every read.
	within := s.given - s.token
	if within > giantTag && !s.raw && beginsTag(s.page[s.token:]) {
		return 0, errGiantTag
	}
	n := copy(p[:min(len(p), max(firstRead, within))], s.page[s.given:])
	s.given += n
	return n, nil
}

// tokenizer returns a tokenizer of the page from the token at hand on, of which the
// bytes up to rest are replaced by head.
func (s *source) tokenizer(head []byte, rest int) *html.Tokenizer {
	s.given = rest
	return html.NewTokenizer(io.MultiReader(bytes.NewReader(head), s))
}

func beginsTag(b []byte) bool { return len(b) > 1 && b[0] == '<' && isLetter(b[1]) }

// shortened returns the start tag at the beginning of b with none but the attributes of
// interest, and the length that it has in b; 0 when it does not end there. It reads tags
// as the tokenizer does.
func shortened(b []byte) (tag []byte, n int) {
	i := endOfName(b, 1)
	tag = append(tag, b[:i]...)
	seen := map[string]bool{}
	lastValue := 0 // where the value of the last attribute ends
	for {
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		switch {
		case i == len(b):
			return nil, 0
		case b[i] == '>':
			if b[i-1] == '/' && lastValue != i {
				tag = append(tag, " /"...)
			}
			return append(tag, '>'), i + 1
		}
		var a attr
		a, i = nextAttr(b, i)
		if len(a.key) == 0 {
			continue
		}
		lastValue = a.end
		if len(a.key) > maxTagName {
			continue
		}
		if key := strings.ToLower(string(a.key)); ofInterest[key] && !seen[key] {
			seen[key] = true
			tag = a.appendTo(tag)
		}
	}
}

// attr is one attribute as it stands in a tag.
type attr struct {
	key, val []byte
	quote    string // around val; some values hold both kinds, and have none
	end      int    // of the value, without its quote
}

func (a *attr) appendTo(tag []byte) []byte {
	tag = append(tag, ' ')
	tag = append(tag, a.key...)
	tag = append(tag, '=')
	tag = append(tag, a.quote...)
	tag = append(tag, a.val...)
	return append(tag, a.quote...)
}

// nextAttr reads the attribute at b[i:], which is neither white space nor the end of the
// tag, and returns where what follows it begins.
func nextAttr(b []byte, i int) (attr, int) {
	start := i
	if b[i] == '=' {
		i++ // a name may begin with one
	}
	for i < len(b) && !isSpace(b[i]) && b[i] != '=' && b[i] != '/' && b[i] != '>' {
		i++
	}
	a := attr{key: b[start:i], quote: `"`, end: i}
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	switch {
	case i == len(b):
		return a, i
	case b[i] == '/':
		return a, i + 1
	case b[i] != '=':
		return a, i
	}
	i++
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	switch {
	case i == len(b) || b[i] == '>':
		return a, i
	case b[i] == '"' || b[i] == '\'':
		val, _, closed := bytes.Cut(b[i+1:], b[i:i+1])
		a.val, a.quote, a.end = val, string(b[i:i+1]), i+1+len(val)
		if !closed {
			return a, len(b)
		}
		return a, a.end + 1
	}
	start = i
	for i++; i < len(b) && !isSpace(b[i]) && b[i] != '>'; i++ {
	}
	a.val, a.quote, a.end = b[start:i], "", i
	return a, i
}

// endOfName returns where the name of the tag at b ends that begins at b[i].
func endOfName(b []byte, i int) int {
	for i < len(b) && !isSpace(b[i]) && b[i] != '/' && b[i] != '>' {
		i++
	}
	return i
}
