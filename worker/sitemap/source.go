package sitemap

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding/unicode"
)

const (
	// One buffer of the text to scan; it also bounds how far reading runs ahead.
	bufferBytes = 32 << 10
	// A file that is compressed and sent compressed by a server that does not say
	// so is met in practice (SM-02 d); more layers only in attacks.
	maxGzip = 2
	// How far an XML declaration may be from the start to count.
	prescanBytes = 1024
)

var errLimit = errors.New("sitemap: there are more bytes than the limit")

// limited fails when there is more than left bytes. Its error stays, also when
// that of r does not.
type limited struct {
	r    io.Reader
	left int64
	err  error
}

func (l *limited) Read(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	// A byte more tells a document at the limit from one beyond it.
	if int64(len(p))-1 > l.left {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		n, err = n-1, errLimit
	}
	l.err = err
	return n, err
}

// gunzip returns what r holds beneath its layers of gzip, which their magic bytes
// tell (RFC 1952 section 2.3.1), and what meters it. Each layer is limited: the
// inner of two may expand into something that the outer one swallows.
func gunzip(r io.Reader, limit int64) (*bufio.Reader, *limited) {
	l := &limited{r: r, left: limit}
	in := bufio.NewReader(l)
	for range maxGzip {
		// An error comes again when the document is read.
		if magic, _ := in.Peek(3); string(magic) != "\x1f\x8b\x08" {
			break
		}
		l = &limited{r: &members{in: in}, left: limit}
		in = bufio.NewReader(l)
	}
	return in, l
}

// members reads the members of a gzip file (RFC 1952 section 2.2) one by one.
// What follows the last complete one and is no member is ignored: some servers pad.
type members struct {
	in   *bufio.Reader
	z    *gzip.Reader
	open bool
}

func (m *members) Read(p []byte) (int, error) {
	for {
		if !m.open {
			if err := m.next(); err != nil {
				return 0, err
			}
		}
		n, err := m.z.Read(p)
		if errors.Is(err, io.EOF) {
			m.open, err = false, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// next opens the next member; io.EOF says that there is none.
func (m *members) next() (err error) {
	if m.z == nil {
		m.z, err = gzip.NewReader(m.in) // there are magic bytes
	} else if err = m.z.Reset(m.in); errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	m.z.Multistream(false)
	m.open = true
	return nil
}

// decode returns the text of in as UTF-8, without a byte order mark. Its encoding
// is that of the mark, of the zeros of a "<" in UTF-16 (XML appendix F), or of
// the XML declaration; else UTF-8, of which nothing is checked here.
func decode(in *bufio.Reader) io.Reader {
	head, _ := in.Peek(prescanBytes)
	endian := unicode.BigEndian
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		_, _ = in.Discard(3) // they were seen
		return in
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("<\x00")):
		endian = unicode.LittleEndian
	case bytes.HasPrefix(head, []byte("\xfe\xff")), bytes.HasPrefix(head, []byte("\x00<")):
	default:
		e, name := charset.Lookup(declared(head))
		// The declaration was read as ASCII, so that it cannot be UTF-16.
		if e == nil || name == "utf-8" || strings.HasPrefix(name, "utf-16") {
			return in
		}
		return e.NewDecoder().Reader(in)
	}
	return unicode.UTF16(endian, unicode.UseBOM).NewDecoder().Reader(in)
}

// declared returns the label in the XML declaration of head; "" when there is none.
func declared(head []byte) string {
	// Something may stand before it: blank lines, a warning of the server's script.
	_, decl, _ := bytes.Cut(head, []byte("<?xml "))
	decl, _, _ = bytes.Cut(decl, []byte("?>"))
	label, _ := attribute(decl, "encoding")
	return label
}
